"""One policy of each kind, converted and quantized once, and a run that was quantized."""

from pathlib import Path

import pytest

from policies import KINDS, Example, make_example


@pytest.fixture(scope="session")
def examples(tmp_path_factory) -> dict[str, Example]:
    """One of each kind."""
    folder = tmp_path_factory.mktemp("converted")
    return {name: make_example(kind, folder / name) for name, kind in KINDS.items()}


@pytest.fixture(params=sorted(KINDS))
def example(request, examples) -> Example:
    return examples[request.param]


@pytest.fixture(scope="session")
def quantized_run(tmp_path_factory) -> Path:
    """A CartPole run with one checkpoint, quantized."""
    import runs
    from quantize import command

    run = tmp_path_factory.mktemp("runs") / "cartpole"
    runs.untrained_run(run)
    command.run(command.parse([str(run), "--calibration-episodes", "5", "--episodes", "5"]))
    return run
