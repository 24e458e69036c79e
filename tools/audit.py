"""Ask pip-audit about every version in constraints.txt: `make audit`.

It needs the vulnerability service that pip-audit asks. Where that cannot be reached nothing was audited, and that is
said with an exit code of its own: 2.
"""

from __future__ import annotations

import subprocess
import sys

UNREACHABLE = 2


def main() -> int:
    """0: no known vulnerability; 1: some; 2: the service could not be asked."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", "constraints.txt", "--no-deps", "--disable-pip"]
    done = subprocess.run([*command, *sys.argv[1:]], capture_output=True, text=True, check=False)
    return outcome(done.returncode, done.stdout, done.stderr)


def outcome(code: int, out: str, err: str) -> int:
    """Print what pip-audit found, or that it found nothing out."""
    skipped = (out + err).count("could not be audited")
    if skipped and not code:
        print(
            f"audit: not run: the service does not know {skipped} packages, so nothing is said of them", file=sys.stderr
        )
        return UNREACHABLE
    if code and not out.strip():
        said = [line for line in err.strip().splitlines() if line.strip()]
        print(f"audit: not run: {said[-1][:300] if said else 'no answer'}", file=sys.stderr)
        return UNREACHABLE
    print(out or err)
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
