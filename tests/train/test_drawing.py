import os
import subprocess
import sys

import pytest

SCRIPT = """
import os
from train.drawing import new_figure, png
figure = new_figure(2.0, 1.0)
figure.subplots().plot([1, 2])
assert png(figure).startswith(b"\\x89PNG")
print(os.environ.get("MPLBACKEND"))
"""


@pytest.mark.parametrize("backend", ["module://matplotlib_inline.backend_inline", "module://nowhere", "tkagg", None])
def test_pictures_are_drawn_whatever_backend_a_notebook_names(backend):
    environment = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
    environment |= {"MPLBACKEND": backend} if backend else {}
    drawn = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120)
    assert drawn.returncode == 0, drawn.stderr
    assert drawn.stdout.strip() == str(backend)
