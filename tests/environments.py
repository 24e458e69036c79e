"""Environments whose right answers are known by hand; importing this module registers them."""

import ctypes
import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Counter(gymnasium.Env):
    """Observes how many steps the episode has lasted; ends at `length`, by termination or by truncation."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length=3, end="terminated", reward=1.0, start=0.0):
        self.length, self.end, self.reward, self.start, self.count = length, end, reward, start, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def step(self, action):
        self.count += 1
        over = self.count >= self.length
        return self._obs(), self.reward, over and self.end == "terminated", over and self.end == "truncated", {}

    def _obs(self):
        return np.array([self.start + self.count], dtype=np.float32)


class Turns(gymnasium.Env):
    """Episodes of two steps in which nothing can be done; every other one pays 10 in the end, the rest nothing.

    What is shown says which of the two it is and which step; the value of every state is known.
    """

    observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)
    states = np.eye(4, dtype=np.float32)
    """Poor at its start, poor after a step, rich at its start, rich after a step; an episode ends with zeros."""

    def __init__(self):
        self.rich, self.count = False, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.rich, self.count = not self.rich, 0
        return self.states[2 * self.rich], {}

    def step(self, action):
        self.count += 1
        over = self.count == 2
        obs = np.zeros(4, np.float32) if over else self.states[2 * self.rich + 1]
        return obs, 10.0 * (over and self.rich), over, False, {}


class Shifted(gymnasium.ObservationWrapper):
    """CartPole seen through observations shifted by 100 and scaled by 50."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def observation(self, observation):
        return (observation * 50 + 100).astype(np.float32)


class Faulty(Counter):
    """Gives NaN, or another number, as the observation or the reward from the tenth step on."""

    def __init__(self, where, number=np.nan):
        super().__init__(length=50)
        self.where, self.number = where, number

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.count >= 10:
            obs = np.full(1, self.number, np.float32) if self.where == "obs" else obs
            reward = float(self.number) if self.where == "reward" else reward
        return obs, reward, terminated, truncated, info


class FaultyPart(Counter):
    """Gives NaN, or another number, in a part of its observation once action 1 was taken ten times."""

    observation_space = spaces.Dict(
        {"count": spaces.Discrete(1000), "noise": spaces.Box(-np.inf, np.inf, (2,), np.float32)}
    )

    def __init__(self, number=np.nan):
        super().__init__(length=50)
        self.number, self.ones = number, 0

    def step(self, action):
        self.ones += int(action)
        return super().step(action)

    def _obs(self):
        noise = np.array([0, self.number if self.ones >= 10 else 0], np.float32)
        return {"count": np.int64(self.count), "noise": noise}


class Target(gymnasium.Env):
    """One step an episode; the reward is how near a Box action with asymmetric bounds is to a target."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(np.array([1.0, -3.0], np.float32), np.array([2.0, 5.0], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"action {action} outside the bounds")
        distance = np.abs((action - [1.75, 3.0]) / [1.0, 8.0]).sum()
        return np.zeros(1, np.float32), -float(distance), True, False, {}


class Sloppy(Counter):
    """Shows its observations as lists, or in another float than its space's."""

    def __init__(self, form):
        super().__init__(length=20)
        self.form = form

    def _obs(self):
        return self.form(super()._obs())


class Breaking(Counter):
    """Fails where it is told to."""

    def __init__(self, where):
        if where == "init":
            raise RuntimeError("no sensor here")
        super().__init__(length=20)
        self.where = where

    def reset(self, *, seed=None, options=None):
        if self.where == "reset":
            raise RuntimeError("no sensor here")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if self.where == "step":
            raise RuntimeError("no sensor here")
        return super().step(action)

    def _obs(self):
        return np.zeros(3, np.float32) if self.where == "shape" else super()._obs()


# What hangs, dies, or speaks an older language (train/environments).


class Hanging(Counter):
    """Sleeps for ever in its third step, or in its reset; `how="stubborn"` goes on when it is interrupted."""

    def __init__(self, where="step", how="sleep"):
        super().__init__(length=100)
        self.where, self.how = where, how

    def reset(self, *, seed=None, options=None):
        if self.where == "reset":
            self._hang()
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if self.where == "step" and self.count == 2:
            self._hang()
        return super().step(action)

    def _hang(self):
        while True:
            try:
                time.sleep(3600)
            except BaseException:
                if self.how != "stubborn":
                    raise


class Locked(Counter):
    """Waits for ever in C for a lock that it holds itself, where no signal reaches it."""

    def step(self, action):
        lock, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
        libc.pthread_mutex_lock(lock)
        libc.pthread_mutex_lock(lock)


class Dying(Counter):
    """Its process ends in the third step."""

    def step(self, action):
        if self.count == 2:
            os._exit(3)
        return super().step(action)


class Old:
    """A class without a base that speaks gym's older language: bare `reset`, four values, `seed`."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, end="terminated", length=3):
        self.end, self.length, self.count, self.first = end, length, 0, 0.0

    def seed(self, seed=None):
        self.first = float(seed)

    def reset(self):
        self.count = 0
        return np.array([self.first], np.float32)

    def step(self, action):
        self.count += 1
        done = self.count >= self.length
        info = {"TimeLimit.truncated": True} if done and self.end == "truncated" else {}
        return np.array([self.first + self.count], np.float32), 1.0, done, info


def same_step(env_id, num_envs):
    """Copies that step together under same-step autoreset: the last observation of an episode is in `final_obs`."""
    makers = [lambda: gymnasium.make(env_id) for _ in range(num_envs)]
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)


def turns_together(num_envs, **_):
    """The vector form of Turns, under same-step autoreset."""
    return SyncVectorEnv([Turns] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


gymnasium.register("Turns-v0", entry_point=Turns, vector_entry_point=turns_together)
for name, entry, keywords in (
    ("Hangs-v0", Hanging, {}),
    ("Hangs-reset-v0", Hanging, {"where": "reset"}),
    ("Hangs-stubborn-v0", Hanging, {"how": "stubborn"}),
    ("Locked-v0", Locked, {}),
    ("Dies-v0", Dying, {}),
    ("Lists-v0", Sloppy, {"form": list}),
    ("Doubles-v0", Sloppy, {"form": lambda obs: obs.astype(np.float64)}),
    *((f"Breaks-{where}-v0", Breaking, {"where": where}) for where in ("init", "reset", "step", "shape")),
    ("Terminates-v0", Counter, {"end": "terminated"}),
    ("Truncates-v0", Counter, {"end": "truncated"}),
    ("Forever-v0", Counter, {"end": "truncated", "length": 100}),
    ("Shifted-v0", Shifted, {}),
    ("NanObs-v0", Faulty, {"where": "obs"}),
    ("NanReward-v0", Faulty, {"where": "reward"}),
    ("InfReward-v0", Faulty, {"where": "reward", "number": np.inf}),
    ("NanPart-v0", FaultyPart, {}),
    ("InfPart-v0", FaultyPart, {"number": -np.inf}),
    ("Target-v0", Target, {}),
):
    gymnasium.register(name, entry_point=entry, kwargs=keywords)


class Cue(gymnasium.Env):
    """Shows a cue and pays 1 for each part of the action that answers it; an episode lasts `length` steps.

    `form` says how the cue is shown, `answer` what kind of action is asked for.
    """

    SPACES = {  # noqa: RUF012 - a test's constant
        "one-hot": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "discrete": spaces.Discrete(2, start=3),
        "multi-discrete": spaces.MultiDiscrete([2, 3]),
        "multi-binary": spaces.MultiBinary(2),
        "hwc": spaces.Box(0, 255, (36, 40, 3), np.uint8),
        "chw": spaces.Box(0, 255, (2, 36, 36), np.uint8),
        "grey": spaces.Box(0, 255, (36, 36), np.uint8),
        "dict": spaces.Dict({"cue": spaces.Discrete(2), "noise": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
        "tuple": spaces.Tuple((spaces.Box(-1.0, 1.0, (1,), np.float32), spaces.Dict({"cue": spaces.MultiBinary(2)}))),
        "picture-and-speed": spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (36, 36, 1), np.uint8),
                "speed": spaces.Box(-np.inf, np.inf, (1,), np.float32),
            }
        ),
    }
    ANSWERS = {  # noqa: RUF012 - a test's constant
        "discrete": spaces.Discrete(2, start=-1),
        "multi-discrete": spaces.MultiDiscrete([2, 3]),
        "multi-binary": spaces.MultiBinary((2, 1)),
        "box": spaces.Box(np.array([1.0, -4.0], np.float32), np.array([3.0, -2.0], np.float32)),
    }

    def __init__(self, form="one-hot", answer="discrete", length=4):
        self.observation_space, self.action_space = self.SPACES[form], self.ANSWERS[answer]
        self.form, self.answer, self.length, self.cue, self.count = form, answer, length, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._show(), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} outside {self.action_space}")
        reward = self._reward(action)
        self.count += 1
        return self._show(), reward, self.count >= self.length, False, {}

    def _reward(self, action):
        if self.answer == "discrete":
            return float(action + 1 == self.cue)
        if self.answer == "multi-discrete":
            return float(np.mean(action == [self.cue, 2 * self.cue]))
        if self.answer == "multi-binary":
            return float(np.mean(np.ravel(action) == [self.cue, 1 - self.cue]))
        return 1.0 - float(np.abs(action - [1.0 + 2 * self.cue, -2.0 - 2 * self.cue]).mean()) / 2

    def _show(self):
        self.cue = int(self.np_random.integers(2))
        noise = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        picture = (np.arange(36) < 18) == bool(self.cue)  # the left or the right half is bright
        shown = {
            "one-hot": lambda: np.eye(2)[self.cue] * 1e3,
            "discrete": lambda: np.int64(3 + self.cue),
            "multi-discrete": lambda: np.array([self.cue, self.np_random.integers(3)]),
            "multi-binary": lambda: np.array([self.cue, self.np_random.integers(2)], np.int8),
            "hwc": lambda: np.broadcast_to(np.resize(picture, 40)[None, :, None] * np.uint8(255), (36, 40, 3)).copy(),
            "chw": lambda: np.broadcast_to(picture[None, None, :] * np.uint8(255), (2, 36, 36)).copy(),
            "grey": lambda: np.broadcast_to(picture[None, :] * np.uint8(255), (36, 36)).copy(),
            "dict": lambda: {"cue": np.int64(self.cue), "noise": noise},
            "tuple": lambda: (noise[:1], {"cue": np.array([self.cue, 1], np.int8)}),
            "picture-and-speed": lambda: {
                "camera": np.broadcast_to(picture[None, :, None] * np.uint8(255), (36, 36, 1)).copy(),
                "speed": noise[:1] * 100,
            },
        }
        return shown[self.form]()


for form in Cue.SPACES:
    gymnasium.register(f"Cue-{form}-v0", entry_point=Cue, kwargs={"form": form})
for answer in Cue.ANSWERS:
    gymnasium.register(f"Answer-{answer}-v0", entry_point=Cue, kwargs={"answer": answer})


class Snow(Cue):
    """A cue in a picture full of noise, so that no two observations are alike."""

    def __init__(self, answer="discrete", length=50):
        super().__init__("hwc", answer, length)

    def _show(self):
        noise = self.np_random.integers(0, 128, (36, 40, 3), dtype=np.uint8)
        return super()._show() // 2 + noise


for answer in ("discrete", "box"):
    gymnasium.register(f"Snow-{answer}-v0", entry_point=Snow, kwargs={"answer": answer})


def stacked_cue():
    """A grey cue, of which the last three pictures are seen."""
    return gymnasium.wrappers.FrameStackObservation(Cue(form="grey", length=7), 3)


gymnasium.register("Stacked-v0", entry_point=stacked_cue)


class Odd(Counter):
    """Does what environments do now and then: `what` says it, from the fifth step of an episode on."""

    observation_space = spaces.Dict({"count": spaces.Box(0, np.inf, (1,), np.float32), "mode": spaces.Discrete(2)})

    def __init__(self, what):
        super().__init__(length=20)
        self.what = what

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.count < 5:
            return obs, reward, terminated, truncated, info
        if self.what == "exits":
            raise SystemExit(0)
        if self.what == "infos":
            info = {"x": 1 if self.count % 2 else "lost"}
        if self.what == "mode":
            obs = {**obs, "mode": -1}
        return obs, reward, np.int64(terminated), truncated, info

    def _obs(self):
        return {"count": super()._obs(), "mode": np.int64(0)}


class Reused(gymnasium.vector.VectorEnv):
    """The cue of `Cue-one-hot-v0` in a vector form that writes every step into the same arrays, its ends integers."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's form

    def __init__(self, num_envs=2, **_):
        self.num_envs = num_envs
        self.envs = gymnasium.vector.SyncVectorEnv([Cue] * num_envs, autoreset_mode="NextStep")
        self.single_observation_space = self.envs.single_observation_space
        self.single_action_space = self.envs.single_action_space
        self.observation_space, self.action_space = self.envs.observation_space, self.envs.action_space
        self.shown = np.zeros((num_envs, 2))

    def reset(self, *, seed=None, options=None):
        self.shown[:], info = self.envs.reset(seed=seed)
        return self.shown, info

    def step(self, actions):
        self.shown[:], reward, terminated, truncated, info = self.envs.step(actions)
        return self.shown, reward, terminated.astype(np.int64), truncated.astype(np.int64), info


for what in ("exits", "infos", "mode"):
    gymnasium.register(f"Odd-{what}-v0", entry_point=Odd, kwargs={"what": what})
gymnasium.register("Reused-v0", entry_point=Cue, vector_entry_point=Reused)
