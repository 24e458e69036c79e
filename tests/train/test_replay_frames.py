"""The replay against a reference that keeps everything it was ever given, on episodes that end at random."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleport.errors import UsageError
from train.replay import Replay

GAMMA = 0.9
VALUES = {"uint8": np.arange(3, dtype=np.uint8), "float32": np.array([0.0, -0.0, np.nan, 1.0], np.float32)}
"""Few values, so that frames are equal by accident; and those that are not equal to themselves, or only seem so."""


@dataclass
class Row:
    obs: dict
    reward: np.ndarray
    terminated: np.ndarray
    done: np.ndarray
    valid: np.ndarray
    final: dict | None
    cut: bool = False


class Environments:
    """N environments that show a stack of k frames and a number, with random frames, rewards and ends."""

    def __init__(self, rng, num_envs, frames, dtype, padding, same_step):
        self.rng, self.count, self.frames, self.same_step = rng, num_envs, frames, same_step
        self.values, self.padding = VALUES[dtype], padding
        self.resetting = np.zeros(num_envs, bool)
        self.stacks = np.stack([self.first() for _ in range(num_envs)])

    def frame(self):
        return self.rng.choice(self.values, size=(2, 1))

    def first(self):
        newest = self.frame()
        older = newest if self.padding == "repeat" else np.zeros_like(newest)
        return np.stack([older] * (self.frames - 1) + [newest])

    def next(self, stack):
        if self.rng.random() < 0.05:  # a surprise: nothing that a stack of frames would do
            return np.stack([self.frame() for _ in range(self.frames)])
        return np.concatenate([stack[1:], self.frame()[None]])

    def shown(self, stacks):
        return {"obs.camera": stacks.copy(), "obs.speed": self.rng.normal(size=self.count).astype(np.float32)}

    def reset(self):
        self.resetting[:] = False
        self.stacks = np.stack([self.first() for _ in range(self.count)])

    def step(self):
        obs, valid = self.shown(self.stacks), ~self.resetting
        terminated = valid & (self.rng.random(self.count) < 0.1)
        done = terminated | (valid & (self.rng.random(self.count) < 0.15))
        reward = np.where(valid, self.rng.integers(10, size=self.count), 0).astype(np.float32)
        after = np.stack([self.next(stack) for stack in self.stacks])
        final = self.shown(after) if self.same_step else None
        starts = done if self.same_step else self.resetting
        self.stacks = np.stack([self.first() if new else stack for new, stack in zip(starts, after, strict=True)])
        self.resetting = np.zeros(self.count, bool) if self.same_step else done
        return Row(obs, reward, terminated, done, valid, final)


class Reference:
    """Every row ever appended, and what a transition is, said as plainly as can be."""

    def __init__(self, n_steps):
        self.rows, self.n_steps = [], n_steps

    def cut(self, obs, num_envs):
        if self.rows:
            self.rows[-1].cut = True
        nothing = np.zeros(num_envs, bool)
        for _ in range(self.n_steps):
            self.rows.append(Row(obs, np.zeros(num_envs), nothing, nothing, nothing, None))

    def transition(self, number, env):
        """Return, discount and next observation (None behind a termination) of a row."""
        total, last = 0.0, number
        for steps in range(self.n_steps):
            last = number + steps
            total += GAMMA**steps * self.rows[last].reward[env]
            if self.rows[last].done[env] or self.rows[last].cut:
                break
        row = self.rows[last]
        if row.terminated[env]:
            return total, 0.0, None
        following = row.final if row.done[env] and row.final is not None else self.rows[last + 1].obs
        return total, GAMMA ** (last - number + 1), {name: value[env] for name, value in following.items()}


def same_bits(first, second):
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def check(memory, reference, rng, num_envs, frames):
    """All that can be drawn is drawn, nothing else, and each transition is the reference's to the last bit."""
    count = len(reference.rows)
    oldest = 0 if count <= memory.length else count - memory.length + frames - 1
    numbers = range(oldest, max(oldest, count - memory.n_steps))
    expected = {(number, env) for number in numbers for env in range(num_envs) if reference.rows[number].valid[env]}
    assert len(memory) == len(expected)
    if not expected:
        return
    sample = memory.sample(1500, rng, 0.5)
    numbers = count - 1 - (count - 1 - sample.rows // num_envs) % memory.length
    drawn = list(zip(numbers.tolist(), (sample.rows % num_envs).tolist(), strict=True))
    assert set(drawn) == expected
    for index, (number, env) in enumerate(drawn[:120]):
        total, discount, following = reference.transition(number, env)
        assert sample.returns[index] == pytest.approx(total, rel=1e-6)
        assert sample.discounts[index] == pytest.approx(discount, rel=1e-6)
        for name, value in reference.rows[number].obs.items():
            assert same_bits(sample.obs[name][index], value[env])
            assert following is None or same_bits(sample.next_obs[name][index], following[name])
    memory.update_priorities(sample.rows[:20], rng.random(20) + 0.5)


def restored(memory, pieces, make):
    """What a resumed run would go on with, from rows of which each was saved once."""
    first = max((int(piece["first"][0]) + len(piece["action"]) // memory.num_envs for piece in pieces), default=0)
    first = max(first, memory.oldest)
    middle = (first + memory.count) // 2
    pieces += [memory.rows(*span) for span in ((first, middle), (middle, memory.count)) if span[0] < span[1]]
    other = make()
    other.restore(memory.state(), [piece for piece in pieces if ends(piece, memory.num_envs) > memory.oldest])
    return other


def ends(piece, num_envs):
    return int(piece["first"][0]) + len(piece["action"]) // num_envs


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_envs=st.integers(1, 3),
    n_steps=st.integers(1, 3),
    frames=st.integers(1, 4),
    dtype=st.sampled_from(sorted(VALUES)),
    padding=st.sampled_from(["zeros", "repeat"]),
    same_step=st.booleans(),
    exponent=st.sampled_from([0.0, 0.6]),
    length=st.integers(1, 25),
)
def test_what_is_drawn_is_what_was_appended(
    seed, num_envs, n_steps, frames, dtype, padding, same_step, exponent, length
):
    rng = np.random.default_rng(seed)
    environments = Environments(rng, num_envs, frames, dtype, padding, same_step)
    leaves = {"obs.camera": ((frames, 2, 1), dtype), "obs.speed": ((), "float32")}

    def make():
        return Replay(length * num_envs, num_envs, leaves, n_steps, GAMMA, exponent, {"obs.camera": frames})

    memory, reference, pieces = make(), Reference(n_steps), []
    for _ in range(60):
        row = environments.step()
        reference.rows.append(row)
        action = rng.integers(5, size=num_envs)
        memory.append(row.obs, action, row.reward, row.terminated, row.done, row.valid, row.final)
        if rng.random() < 0.1:  # a barrier
            obs = environments.shown(environments.stacks)
            memory.cut(obs)
            reference.cut(obs, num_envs)
            environments.reset()
            memory = restored(memory, pieces, make)
        if rng.random() < 0.15:
            check(memory, reference, rng, num_envs, frames)
    check(memory, reference, rng, num_envs, frames)


def stack_replay(**options):
    shape = (4, 8, 8)
    return Replay(**{"capacity": 400, "num_envs": 1, "n_steps": 1, "gamma": 0.9} | options, **camera(shape))


def camera(shape):
    return {"leaves": {"obs": (shape, "uint8")}, "stacks": {"obs": 4}}


def play(memory, steps, *, episode):
    """Append stacks as FrameStack makes them, the first frame repeated, under same-step autoreset."""
    rng = np.random.default_rng(0)
    flag = np.zeros(1, bool)
    stack = np.zeros((1, 4, 8, 8), np.uint8)
    for step in range(steps):
        frame = rng.integers(256, size=(1, 1, 8, 8), dtype=np.uint8)
        stack = np.repeat(frame, 4, axis=1) if step % episode == 0 else np.concatenate([stack[:, 1:], frame], axis=1)
        memory.append({"obs": stack}, np.zeros(1, int), np.zeros(1), flag, flag, ~flag, {"obs": stack})


def test_only_an_episodes_first_rows_keep_more_than_a_frame():
    memory = stack_replay()
    play(memory, 100, episode=20)
    saved = memory.rows(0, 100)
    assert saved["obs.values.obs"].shape == (100, 8, 8)
    assert sorted(saved["obs.older.at.obs"] % 20) == sorted([0, 1, 2] * 5)
    assert saved["obs.older.values.obs"].shape == (15, 3, 8, 8)


def test_what_is_kept_beside_the_ring_goes_with_its_row():
    memory = stack_replay(capacity=50)
    play(memory, 5000, episode=10)
    assert len(memory.rows(memory.oldest, memory.count)["obs.older.at.obs"]) == 15


def test_the_replay_holds_on_to_no_array_that_it_was_given():
    memory = stack_replay()
    obs = np.ones((1, 4, 8, 8), np.uint8)
    flag = np.zeros(1, bool)
    for _ in range(4):
        memory.append({"obs": obs}, flag, flag, flag, ~flag, ~flag, {"obs": obs})
        obs += 1  # as an environment does that fills the same buffer at every step
    sample = memory.sample(50, np.random.default_rng(0))
    assert sorted(set(sample.obs["obs"][:, 0, 0, 0])) == [1, 2, 3]
    assert (sample.next_obs["obs"] == sample.obs["obs"]).all()


def test_a_stack_of_another_number_of_frames_is_refused():
    with pytest.raises(UsageError, match="no stack of 4 frames"):
        Replay(10, 1, {"obs": ((3, 8, 8), "uint8")}, 1, 0.9, stacks={"obs": 4})
