"""Matplotlib without a screen: an empty figure, and a figure as PNG bytes. It is imported when first asked for."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BACKEND = "MPLBACKEND"
_DPI = 120


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches.

    Raises:
        ModuleNotFoundError: Matplotlib is not installed.
    """
    # A notebook names its own backend to all that it starts, and where that is not installed Matplotlib refuses to be
    # imported. No backend is used here.
    named = os.environ.pop(_BACKEND, None) if "matplotlib" not in sys.modules else None
    try:
        from matplotlib.figure import Figure  # without pyplot, which would look for a screen
    finally:
        if named is not None:
            os.environ[_BACKEND] = named
    return Figure(figsize=(width, height), dpi=_DPI, layout="constrained")


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()
