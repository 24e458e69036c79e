"""What the presets come to, seed by seed, beside published returns: `make bench-learning`.

    .venv/bin/python -m benchmarks.learning [--only CartPole-v1-dqn] [--jobs 2] [--list] [--write]

Each seed of each row is trained by `paddleport train` into build/learning and evaluated by `paddleport evaluate`. A run
that has finished is not trained again, one that was stopped goes on from its last checkpoint. Each seed leaves a JSON
file in benchmarks/results/learning, and from these come learning.md beside that folder and a picture for each task.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import NoReturn

from benchmarks.learning_report import Result, document, figure, read_results, verdict
from benchmarks.learning_rows import ROWS, Row
from benchmarks.learning_seeds import Seed, complete
from benchmarks.processes import Children
from paddleport.errors import PaddleportError
from paddleport.files import write_atomic

RESULTS = Path("benchmarks") / "results"
DETAILS = RESULTS / "learning"
_SAY_EVERY_SECONDS = 60.0


def write_documents(rows: Sequence[Row]) -> None:
    """Make `learning.md` and its pictures from the results that there are.

    Raises:
        ArtifactError: a result is damaged.
    """
    results = {row: read_results(DETAILS, row) for row in rows}
    presets = {row: Seed(row, 0).planned() for row in rows}
    figures = {}
    for environment in dict.fromkeys(row.environment for row in rows):
        picture = figure([row for row in rows if row.environment == environment], results)
        if picture is not None:
            path = DETAILS / f"{environment}.png"
            write_atomic(path, picture)
            figures[environment] = path.relative_to(RESULTS).as_posix()
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_atomic(RESULTS / "learning.md", document(rows, results, presets, figures).encode())


def run_all(seeds: Sequence[Seed], jobs: int) -> int:
    """Complete all seeds, several at a time, and say how it goes; returns how many failed."""
    children, failed, done = Children(), 0, 0
    with ThreadPoolExecutor(jobs) as pool, _termination_raises():
        waiting: dict[Future[Result], Seed] = {pool.submit(complete, seed, children, DETAILS): seed for seed in seeds}
        try:
            while waiting:
                ended, _ = wait(waiting, timeout=_SAY_EVERY_SECONDS, return_when=FIRST_COMPLETED)
                for future in ended:
                    seed, done = waiting.pop(future), done + 1
                    said, ok = _outcome(future)
                    failed += not ok
                    say(f"{seed.name}: {said} [{done} of {len(seeds)}]")
                    if ok:
                        write_documents(ROWS)
                for seed in [waiting[future] for future in waiting if future.running() and not ended]:
                    say(f"  {seed.name}: {_last_line(seed.log)}")
        except KeyboardInterrupt:
            say("Stopping: each training goes on to its next checkpoint if that is near.")
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise
    return failed


def _outcome(future: Future[Result]) -> tuple[str, bool]:
    """What came of a seed, in words, and whether it has a result."""
    try:
        result = future.result()
    except PaddleportError as error:
        return str(error), False
    return f"{result.mean:.1f} ± {result.std:.1f} after {result.steps:,} steps, {result.wall_seconds:.0f} s", True


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    return lines[-1] if lines else "starting"


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Within the block SIGTERM does what Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def say(line: str) -> None:
    """Progress, at once."""
    print(line, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 where every seed has its result."""
    parser = argparse.ArgumentParser(prog="benchmarks.learning", description=__doc__.split("\n")[0])
    names = [row.name for row in ROWS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="ROW", help="a row; can be given several times"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many seeds are trained at a time")
    parser.add_argument("--list", action="store_true", help="print the rows and how far they are, and end")
    parser.add_argument(
        "--write", action="store_true", help="make learning.md from the results that there are, and end"
    )
    options = parser.parse_args(argv)
    if not 1 <= options.jobs <= 64:
        parser.error(f"--jobs takes 1 … 64, got {options.jobs}")
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    seeds = [Seed(row, seed) for row in rows for seed in range(row.seeds)]
    try:
        if options.list:
            for row in rows:
                target = row.target.words(row.seeds) if row.target else "none"
                print(f"{row.name}: target {target}; {verdict(row, read_results(DETAILS, row))}".replace("**", ""))
            return 0
        failed = 0 if options.write else run_all(seeds, options.jobs)
        write_documents(ROWS)
    except PaddleportError as error:
        say(f"bench-learning: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"{RESULTS / 'learning.md'} is written.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
