"""What an accountant's figures are called, as columns of tables and as lines on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.research.evidence import Figures

# Suffixes of figures that belong to another figure.
DEVIATION: Final = "standard deviation"
ORDER: Final = "order"
MIRONOV: Final = "by Mironov 2017"

Columns = dict[str, Float64[ndarray, " units"]]


def columns_of_figures(name: str, figures: Figures) -> Columns:
    """An accountant's figures for every unit, by what they are called; those that it has not are left out."""
    happened = name if figures.expected is None else f"{name} (realised)"
    told = {
        happened: figures.happened,
        f"{happened} {MIRONOV}": figures.mironov,
        f"{name} (expected)": figures.expected,
        f"{name} (expected) {MIRONOV}": figures.expected_mironov,
    }
    columns: Columns = {}
    for called, least in told.items():
        if least is not None:
            columns[called], columns[f"{called} {ORDER}"] = least.epsilon, least.order
    if figures.std is not None:
        columns[f"{name} {DEVIATION}"] = figures.std
    return columns


def figure_lines(columns: Mapping[str, Float64[ndarray, " units"]], names: list[str], *, worst: float) -> list[str]:
    """A line for each named epsilon, and one for what the papers' conversion makes of it; worst: the worst case."""
    lines = []
    for name in names:
        std, order = columns.get(f"{name} {DEVIATION}"), columns.get(f"{name} {ORDER}")
        lines.append(
            f"  {name}: epsilon {span(columns[name])}{'' if std is None else f', +- {span(std)} ({DEVIATION})'}"
            f"{'' if order is None else f', order {span(order)}'} (worst case {worst:.4g})"
        )
        papers = f"{name} {MIRONOV}"
        if papers in columns:
            lines.append(
                f"    as the papers convert (Mironov 2017): epsilon {span(columns[papers])}, order "
                f"{span(columns[f'{papers} {ORDER}'])}"
            )
    return lines


def span(values: Float64[ndarray, " units"]) -> str:
    """The least and the largest known value as text; only one if they are equal."""
    low, high = (f"{value:.4g}" for value in (np.nanmin(values), np.nanmax(values)))
    return low if low == high else f"{low} to {high}"
