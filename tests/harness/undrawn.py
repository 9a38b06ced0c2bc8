"""Figures that are made but not drawn, for tests of what else a run writes and says."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

EMPTY = {"svg": '<svg xmlns="http://www.w3.org/2000/svg" width="1pt" height="1pt"></svg>', "png": b"", "pdf": b""}


@contextmanager
def drawing_nothing() -> Iterator[None]:
    """Every figure's file is an empty picture: Matplotlib's drawing would be most of the time of a small run.

    What it draws is tested in tests/system/simulations/plots, on runs of every shape.
    """

    def save(figure: Figure, sink: Any, *, format: str, **more: object) -> None:
        sink.write(EMPTY[format])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    """`drawing_nothing` for one test."""
    with drawing_nothing():
        yield
