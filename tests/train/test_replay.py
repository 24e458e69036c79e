import numpy as np
import pytest

from paddleport.errors import ArtifactError, UsageError
from train.replay import Replay, n_step_returns


def replay(**options):
    """Ten slots of one environment, whose observation is one number."""
    settings = {"capacity": 10, "num_envs": 1, "leaves": {"obs": ((1,), "float32")}, "n_steps": 1, "gamma": 0.5}
    return Replay(**{**settings, **options})


def one(obs):
    return {"obs": np.array([[obs]], np.float32)}


def append(memory, obs, reward=1.0, *, terminated=False, truncated=False, valid=True, final=None):
    memory.append(
        obs=one(obs),
        action=np.array([int(obs)]),
        reward=np.array([reward]),
        terminated=np.array([terminated]),
        done=np.array([terminated or truncated]),
        valid=np.array([valid]),
        final_obs=None if final is None else one(final),
    )


def by_obs(memory, size=400):
    """Every transition that comes up, by its observation."""
    sample = memory.sample(size, np.random.default_rng(0))
    obs, following = sample.obs["obs"][:, 0], sample.next_obs["obs"][:, 0]
    rows = zip(obs, sample.returns, following, sample.discounts, strict=True)
    return {float(obs): (float(ret), float(following), float(discount)) for obs, ret, following, discount in rows}


def test_one_step_transitions_hold_the_observation_behind_them():
    memory = replay()
    for step in range(4):
        append(memory, step, reward=step + 1)
    assert by_obs(memory) == {0: (1, 1, 0.5), 1: (2, 2, 0.5), 2: (3, 3, 0.5)}


def test_n_step_returns_are_the_sums_by_hand():
    memory = replay(n_steps=3)
    for step in range(6):
        append(memory, step, reward=step + 1)
    assert by_obs(memory)[0] == (1 + 0.5 * 2 + 0.25 * 3, 3, 0.125)
    assert set(by_obs(memory)) == {0, 1, 2}


@pytest.mark.parametrize(("terminated", "discount"), [(True, 0.0), (False, 0.25)])
def test_n_step_returns_stop_at_an_episodes_end(terminated, discount):
    memory = replay(n_steps=3)
    append(memory, 0, reward=1)
    append(memory, 1, reward=2, terminated=terminated, truncated=not terminated)
    append(memory, 2, reward=0, valid=False)
    for step in (50, 51, 52, 53):
        append(memory, step, reward=1000)
    transitions = by_obs(memory)
    assert transitions[0] == (1 + 0.5 * 2, 2, discount)
    assert transitions[1] == (2, 2, 0.0 if terminated else 0.5)
    assert 2 not in transitions


def test_a_cut_episode_bootstraps_from_the_observation_it_was_cut_at():
    memory = replay(n_steps=2)
    append(memory, 0, reward=1)
    append(memory, 1, reward=2)
    memory.cut(one(2))
    append(memory, 70, reward=1000)
    assert by_obs(memory) == {0: (1 + 0.5 * 2, 2, 0.25), 1: (2, 2, 0.5)}


@pytest.mark.parametrize(("terminated", "discount"), [(True, 0.0), (False, 0.25)])
def test_under_same_step_autoreset_a_return_bootstraps_from_the_final_observation(terminated, discount):
    memory = replay(n_steps=3)
    append(memory, 0, reward=1)
    append(memory, 1, reward=2, terminated=terminated, truncated=not terminated, final=77)
    for step in (50, 51, 52, 53):
        append(memory, step, reward=1000, final=99)
    transitions = by_obs(memory)
    assert transitions[0][::2] == (1 + 0.5 * 2, discount)
    assert transitions[1][::2] == (2, 0.0 if terminated else 0.5)
    assert set(transitions) == {0, 1, 50}
    if not terminated:
        assert transitions[0][1] == transitions[1][1] == 77


def test_under_same_step_autoreset_a_cut_right_behind_an_end_keeps_the_final_observation():
    memory = replay(n_steps=2)
    append(memory, 0, reward=1)
    append(memory, 1, reward=2, truncated=True, final=77)
    memory.cut(one(50))
    append(memory, 70, reward=1000)
    assert by_obs(memory) == {0: (1 + 0.5 * 2, 77, 0.25), 1: (2, 77, 0.5)}


def test_a_cut_right_behind_an_end_under_next_step_autoreset_adds_no_transition():
    memory = replay(n_steps=2)
    append(memory, 0, reward=1, truncated=True)
    memory.cut(one(1))
    assert by_obs(memory) == {0: (1, 1, 0.5)}


@pytest.mark.parametrize("same_step", [False, True])
def test_episode_ends_are_right_at_every_place_of_the_ring(same_step):
    """Episodes of three steps; each row's successor is 1 more, and the episode's last one bootstraps from x.5."""
    memory = replay(capacity=7, n_steps=2)
    for step in range(40):
        ends = step % 3 == 2
        append(memory, step, truncated=ends, final=step + 0.5 if same_step else None)
        if ends and not same_step:
            append(memory, step + 0.5, valid=False)
        for obs, (ret, following, discount) in (by_obs(memory, 60) if len(memory) else {}).items():
            left = 2 - obs % 3  # steps behind this one in its episode
            assert ret == (1 if left == 0 else 1.5)
            assert following == (obs + left + 0.5 if left < 2 else obs + 2)
            assert discount == (0.5 if left == 0 else 0.25)


def test_the_length_counts_what_can_be_drawn():
    memory = replay(capacity=6, n_steps=2)
    lengths = []
    for step in range(12):
        append(memory, step, valid=step % 2 == 0)
        lengths.append(len(memory))
        assert len(memory) == (len(by_obs(memory, 200)) if len(memory) else 0)
    assert lengths == [0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]


def test_drawing_from_an_empty_replay_is_refused():
    memory = replay()
    append(memory, 0)
    with pytest.raises(UsageError, match="no transition yet"):
        memory.sample(1, np.random.default_rng(0))


def test_rows_behind_a_cut_never_change_again():
    """So that a checkpoint's rows can be written once: compared after further steps, cuts and priorities."""
    memory = replay(capacity=40, n_steps=3, exponent=0.6)
    written = []
    for barrier in range(3):
        for step in range(5):
            append(memory, step + 10 * barrier, truncated=step == 4 and barrier == 1)
        memory.cut(one(5 + 10 * barrier))
        first = written[-1][1] if written else 0
        written.append((first, memory.count, memory.rows(first, memory.count)))
        memory.update_priorities(np.arange(3), np.ones(3))
        memory.cut(one(0)) if barrier == 2 else None
    for first, end, rows in written:
        for name, value in memory.rows(first, end).items():
            assert value.tobytes() == rows[name].tobytes(), name


def test_the_ring_forgets_the_oldest_and_mixes_nothing_at_its_seam():
    memory = replay(n_steps=2)
    for step in range(27):
        append(memory, step, reward=step)
    transitions = by_obs(memory)
    assert set(transitions) == {float(step) for step in range(17, 25)}
    for step, (ret, following, _) in transitions.items():
        assert (ret, following) == (step + 0.5 * (step + 1), step + 2)


def test_uniform_sampling_is_uniform():
    memory = replay(capacity=40)
    for step in range(41):
        append(memory, step, valid=step % 2 == 0)
    drawn = memory.sample(40_000, np.random.default_rng(0)).obs["obs"][:, 0].astype(int)
    counts = np.bincount(drawn, minlength=41)[2:40:2]
    assert counts == pytest.approx(np.full(len(counts), counts.mean()), rel=0.1)
    assert not np.bincount(drawn)[1::2].any()


def test_priorities_decide_frequencies_and_weights_undo_them():
    memory = replay(exponent=0.6)
    for step in range(5):
        append(memory, step)
    memory.update_priorities(np.arange(4), np.array([1.0, 2.0, 4.0, 8.0]))
    sample = memory.sample(100_000, np.random.default_rng(0), beta=1.0)
    expected = np.array([1.0, 2.0, 4.0, 8.0]) ** 0.6
    assert np.bincount(sample.rows, minlength=4)[:4] / 100_000 == pytest.approx(expected / expected.sum(), abs=0.005)
    by_row = {int(row): float(weight) for row, weight in zip(sample.rows, sample.weight, strict=True)}
    assert [by_row[row] for row in range(4)] == pytest.approx(expected[0] / expected, rel=1e-5)


def test_a_new_transition_has_the_largest_priority_so_far():
    memory = replay(exponent=1.0)
    for step in range(3):
        append(memory, step)
    memory.update_priorities(np.array([0, 1]), np.array([9.0, 1.0]))
    append(memory, 3)
    rows = memory.sample(19_000, np.random.default_rng(0)).rows
    assert np.bincount(rows, minlength=3)[:3] == pytest.approx([9_000, 1_000, 9_000], rel=0.05)


def test_what_left_the_ring_is_not_drawn_again_though_its_priority_is_set():
    memory = replay(exponent=1.0)
    for step in range(12):
        append(memory, step)
    newest = (memory.count - 1) % memory.length
    memory.update_priorities(np.array([newest]), np.array([1e6]))  # it waits for its successor: no transition yet
    assert newest not in memory.sample(200, np.random.default_rng(0)).rows


def restored(memory, pieces, **options):
    other = replay(**options)
    other.restore(memory.state(), pieces)
    return other


@pytest.mark.parametrize("exponent", [0.0, 0.6])
@pytest.mark.parametrize("steps", [4, 27])
def test_a_restored_replay_samples_the_same(exponent, steps):
    memory = replay(exponent=exponent)
    for step in range(steps):
        append(memory, step, truncated=step % 5 == 1, final=step + 0.5)
    memory.update_priorities(np.array([0, 2]), np.array([5.0, 0.1]))
    first = max(0, memory.oldest - 2)  # a file of rows may begin before the ring does
    pieces = [memory.rows(first, first + 3), memory.rows(first + 3, memory.count)]
    other = restored(memory, pieces, exponent=exponent)
    for each in (memory, other):
        append(each, 27)
    assert len(memory) == len(other)
    drawn, same = (each.sample(64, np.random.default_rng(3), 0.5) for each in (memory, other))
    assert (drawn.rows == same.rows).all()
    assert (drawn.weight == same.weight).all()
    assert (drawn.next_obs["obs"] == same.next_obs["obs"]).all()


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_replay_with_missing_rows_is_refused(missing):
    memory = replay()
    for step in range(27):
        append(memory, step)
    pieces = [memory.rows(first, end) for first, end in ((17, 20), (20, 25), (25, 27))]
    del pieces[missing]
    with pytest.raises(ArtifactError, match="The replay is not whole"):
        restored(memory, pieces)


def test_n_step_returns_by_hand():
    rewards = np.array([[1, 2, 4], [1, 2, 4], [1, 2, 4]], np.float32)
    done = np.array([[False, False, True], [False, True, False], [True, False, True]])
    returns, steps = n_step_returns(rewards, done, np.array([1, 0.5, 0.25], np.float32))
    assert returns.tolist() == [1 + 1 + 1, 1 + 1, 1]
    assert steps.tolist() == [3, 2, 1]
