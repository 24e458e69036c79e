"""What `make setup` needs of the machine, said in one line where it is missing. Runs on any Python 3."""

import ctypes
import importlib
import subprocess
import sys

HEADLESS_OPENCV = "opencv-python-headless==4.6.0.66"


def check_python() -> None:
    """Refuse a Python that the pinned packages have no wheels for."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 12):
        found = f"{sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})"
        sys.exit(f"make: expected Python 3.11 or 3.12, got {found}. Name another one with PYTHON=/path/to/python3.11")


def check_libraries() -> None:
    """Refuse a machine without the libraries that the packages load, or bring them where pip can."""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        sys.exit("make: Paddle needs the system's libgomp.so.1. On Debian: apt-get install libgomp1")
    try:
        importlib.import_module("cv2")
    except ImportError:
        # PaddleSlim imports OpenCV, whose usual build wants a graphics library that a bare machine lacks.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.check_call([*pip, "--no-deps", "--force-reinstall", HEADLESS_OPENCV])


if __name__ == "__main__":
    {"python": check_python, "libraries": check_libraries}[sys.argv[1]]()
