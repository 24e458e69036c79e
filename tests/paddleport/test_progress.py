import os
import pty
import subprocess
import sys

import pytest

from paddleport import progress

SCRIPT = (
    "from paddleport.progress import stage\nwith stage('Playing', 9) as advance:\n    [advance() for _ in range(9)]"
)


def test_a_bar_with_a_long_label_stays_on_one_line_with_its_numbers(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with progress._bar("CartPole-v1, runs/a-long-name-of-a-run/checkpoints/step-000100109", 100) as advance:
        for _ in range(100):
            advance()
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.strip()]
    assert len(line) <= 80
    assert line.startswith("CartPole-v1, runs/")
    assert "100/100 0:00:00" in line


@pytest.mark.parametrize(
    ("more", "bar"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "JPY_PARENT_PID": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_bar_is_drawn_on_a_terminal_and_plain_lines_in_a_notebook(more, bar):
    environment = {key: value for key, value in os.environ.items() if key not in ("TERM", "JPY_PARENT_PID")}
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment | more, stderr=theirs, timeout=60)
    os.close(theirs)
    said = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert ("\x1b[" in said) is bar
    assert (said == "Playing\r\n") is not bar
