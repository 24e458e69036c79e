import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from PIL import Image

import environments  # noqa: F401 - registers the environments
from bundles import publish_discrete
from paddleport.errors import TrainingError, UsageError
from runs import untrained_run
from train.environments import make_environment
from train.episodes import play
from train.evaluate_command import Evaluation, Options, run, show

PAINTERS = """
    import numpy as np
    from gymnasium import spaces

    class Painter:
        '''An episode of three steps; the picture is blue at its start, and 50 brighter in red at each step.'''

        observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        action_space = spaces.Discrete(2)
        metadata = {"render_fps": 10}
        shape = (40, 60)

        def reset(self, seed=None):
            self.count = 0
            return np.zeros(2, np.float32)

        def step(self, action):
            self.count += 1
            return np.zeros(2, np.float32), 1.0, self.count == 3, False, {}

        def render(self):
            picture = np.zeros((*self.shape, 3), np.uint8)
            picture[:] = (50 * self.count, 0, 200)
            return picture

    class Large(Painter):
        shape = (300, 1200)

    class Fast(Painter):
        metadata = {"render_fps": 100}

    class OfTheOldShape(Painter):
        def render(self, mode="human"):
            assert mode == "rgb_array"
            return super().render()

    class Asked(Painter):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

        def __init__(self, render_mode=None):
            self.asked = render_mode

        def render(self):
            return super().render() if self.asked == "rgb_array" else None

    class ForPeople(Painter):
        metadata = {"render_modes": ["human"]}

        def __init__(self, render_mode=None):
            assert render_mode in (None, "human")

        def render(self):
            return None

    class Grey(Painter):
        def render(self):
            return np.zeros((4, 4), np.uint8)

    class Raises(Painter):
        def render(self):
            raise RuntimeError("no paint")

    class Fades(Painter):
        def render(self):
            return super().render() if self.count == 0 else None

    class Blind(Painter):
        render = None
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "painters.py").write_text(textwrap.dedent(PAINTERS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def painted(folder):
    """Record an episode of a painter with an untrained run's policy."""
    untrained_run(folder / "run", "painters.py:Painter")

    def record(name="Painter", **options):
        return run(Options(path="run", env=f"painters.py:{name}", episodes=2, record="out.gif", **options))

    return record


def colors(path):
    """The colour of each frame in the middle, and how long each is shown, in milliseconds."""
    shown = []
    with Image.open(path) as picture:
        for number in range(picture.n_frames):
            picture.seek(number)
            middle = tuple(side // 2 for side in picture.size)
            shown.append((picture.convert("RGB").getpixel(middle), picture.info["duration"]))
    return shown


def red(*values, duration=100):
    return [((value, 0, 200), duration) for value in values]


@pytest.mark.parametrize("name", ["Painter", "OfTheOldShape", "Asked"])
def test_every_step_of_the_first_episode_is_shown(painted, folder, name, capfd):
    evaluation = painted(name)
    assert evaluation.mean == 3.0
    assert (evaluation.recording.steps, evaluation.recording.episode_steps) == (3, 3)
    assert colors(folder / "out.gif") == red(0, 50, 100, 150)
    show(evaluation)
    assert "out.gif shows all 3 steps of the first episode" in capfd.readouterr().out


def test_a_recording_has_a_limit_and_the_episode_has_none(painted, folder, capfd):
    evaluation = painted(record_steps=1)
    assert (evaluation.mean, evaluation.recording.steps, evaluation.recording.episode_steps) == (3.0, 1, 3)
    assert colors(folder / "out.gif") == red(0, 50)
    show(evaluation)
    assert "shows the first 1 of 3 steps" in capfd.readouterr().out


def test_what_is_too_fast_for_a_gif_leaves_frames_out(painted, folder):
    painted("Fast")
    assert colors(folder / "out.gif") == red(0, 100, duration=20)


def test_a_large_picture_is_scaled_down(painted, folder):
    painted("Large")
    with Image.open(folder / "out.gif") as picture:
        assert picture.size == (480, 120)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ForPeople", r"expected that its render\(\) gives pixels, uint8 .*, got nothing"),
        ("Grey", r"got uint8 \[4, 4\]"),
        ("Raises", "got RuntimeError: no paint"),
        ("Blind", "got nothing"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_an_episode_is_played(painted, folder, monkeypatch, name, words):
    monkeypatch.setattr("train.evaluate_command.play", None)
    with pytest.raises(UsageError, match=f"painters.py:{name} cannot be recorded: .*{words}"):
        painted(name)
    assert not (folder / "out.gif").exists()


def test_a_registered_environment_without_pictures_is_refused(folder):
    untrained_run(folder / "run", "Terminates-v0")
    with pytest.raises(UsageError, match="Terminates-v0 cannot be recorded"):
        run(Options(path="run", record="out.gif"))


def test_a_picture_that_fails_later_is_an_error_and_no_file(painted, folder):
    with pytest.raises(TrainingError, match="something else than before"):
        painted("Fades")
    assert not (folder / "out.gif").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"record": "out.mp4"}, r"--record writes another kind of file: expected a name that ends in \.gif"),
        ({"record": "none/out.gif"}, "folder that is not there"),
        ({"record": "out.gif", "record_steps": 0}, "--record-steps is out of range: expected 1"),
        ({"record": "out.gif", "record_steps": 10**6}, "--record-steps is out of range"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(folder, options, words):
    with pytest.raises(UsageError, match=words):
        run(Options(path="nothing-here", **options))


def test_classic_gym_can_be_recorded_too():
    taken = []
    play(lambda obs: [0] * len(obs["obs"]), "gym:CartPole-v1", 1, 0, watch=lambda env: taken.append(env.render()))
    assert {(picture.shape, str(picture.dtype)) for picture in taken} == {((400, 600, 3), "uint8")}


def test_watching_changes_no_episode():
    def lean(obs):
        return (obs["obs"][:, 2] > 0).astype(np.int64)

    taken = []
    watched = play(lean, "CartPole-v1", 5, 3, parallel=2, watch=lambda env: taken.append(env.render()))
    assert watched.returns.tolist() == play(lean, "CartPole-v1", 5, 3).returns.tolist()
    assert len(taken) == watched.lengths[0] + 1


def test_an_atari_games_screen_is_that_of_the_game_being_played():
    pytest.importorskip("ale_py", reason="needs ale-py")
    game, watched = (make_environment("ALE/Breakout-v5", render_mode=mode) for mode in (None, "rgb_array"))
    assert np.array_equal(game.reset(seed=4)[0], watched.reset(seed=4)[0])
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = int(rng.integers(0, 4))
        expected, obs = game.step(action), watched.step(action)
        assert np.array_equal(expected[0], obs[0])
        assert expected[1:4] == obs[1:4]
        screen = watched.render()
        assert (screen.shape, screen.dtype) == ((210, 160, 3), np.uint8)
        grey = Image.fromarray(screen).convert("L").resize((84, 84), Image.Resampling.BOX)
        assert np.abs(np.asarray(grey, np.float64) - obs[0][-1]).mean() < 3
    assert game.render() is None


def test_the_command_records_a_bundle(folder):
    publish_discrete(folder / "models")
    arguments = ("--env", "CartPole-v1", "--episodes", "1", "--record", "out.gif", "--record-steps", "5", "--json")
    command = [sys.executable, "-m", "paddleport", "evaluate", folder / "models" / "cartpole", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recording"]["steps"] == 5
    with Image.open(folder / "out.gif") as picture:
        assert (picture.format, picture.size) == ("GIF", (480, 320))


def test_one_episode_is_not_called_episodes(capfd):
    played = Evaluation(mean=3.0, std=0.0, min=3.0, max=3.0, episodes=1, seed=7, environment="painters", policy="run")
    show(played)
    assert "1 episode, seed 7" in capfd.readouterr().out
