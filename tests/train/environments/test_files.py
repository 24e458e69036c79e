import textwrap

import numpy as np
import pytest

from paddleport.errors import UsageError
from train.environments import describe_environment, make_environment, make_vector
from train.episodes import play

PLAIN = """
    import numpy as np
    from gymnasium import spaces
    from lengths import LENGTH

    class Plain:
        observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        action_space = spaces.Discrete(2)

        def reset(self):
            self.count = 0
            return np.zeros(2, np.float32)

        def step(self, action):
            self.count += 1
            return np.zeros(2, np.float32), 1.0, self.count == LENGTH, False, {}

    class Sized(Plain):
        def __init__(self, size, colour="red"):
            pass

    class Spaceless:
        reset, step = Plain.reset, Plain.step
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "room.py").write_text(textwrap.dedent(PLAIN))
    (tmp_path / "lengths.py").write_text("LENGTH = 4")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "lengths", raising=False)
    return tmp_path


def test_a_plain_class_in_a_file_is_played(folder):
    played = play(lambda obs: [0] * len(obs["obs"]), "room.py:Plain", 2, seed=0)
    assert played.lengths.tolist() == [4, 4]


def test_an_absolute_path_works_from_anywhere(folder, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    info, observation_space, _ = describe_environment(f"{folder}/room.py:Plain")
    assert (info.id, observation_space.shape) == (f"{folder}/room.py:Plain", (2,))


def test_a_file_is_found_in_worker_processes_too(folder):
    envs = make_vector("room.py:Plain", 2, "async")
    envs.reset(seed=0)
    done = [envs.step(np.zeros(2, np.int64))[2].tolist() for _ in range(4)]
    envs.close()
    assert done[2:] == [[False, False], [True, True]]


def test_what_a_class_lacks_is_filled_in(folder):
    env = make_environment("room.py:Plain")
    assert env.metadata["render_modes"] == []
    assert env.render() is None
    env.close()


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("rom.py:Plain", "expected a Python file, got no file rom.py. A relative path"),
        ("room.py:Plane", "room.py:Plain?"),
        ("room.py:Other", "reset and step: Plain, Sized, Spaceless"),
        ("room.py:Sized", "needs size"),
        ("room.py:Spaceless", "none named observation_space or action_space"),
        ("broken.py:X", "SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(folder, env_id, words):
    (folder / "broken.py").write_text("class X(")
    with pytest.raises(UsageError) as raised:
        make_environment(env_id)
    assert words in str(raised.value)
