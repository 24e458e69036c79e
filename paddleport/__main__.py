"""`python -m paddleport` is the command `paddleport`."""

import sys

from paddleport.cli import main

if __name__ == "__main__":
    sys.exit(main())
