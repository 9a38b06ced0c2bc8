"""What papers printed, beside what this project measures: one file a paper, with its printed figures beside it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from protocols.errors import InvalidInput

if TYPE_CHECKING:
    from benchmarks.papers.paper import Paper

# Each paper, and the function that makes it. To list them, none is imported.
PAPERS: Final[dict[str, str]] = {
    "pate2017": "benchmarks.papers.pate2017:paper",
    "pate2018": "benchmarks.papers.pate2018:paper",
    "individualized": "benchmarks.papers.individualized:paper",
    "capc": "benchmarks.papers.capc:paper",
    "multi_winner": "benchmarks.papers.multi_winner:paper",
    "bayesian_dp": "benchmarks.papers.bayesian_dp:paper",
    "private_knn": "benchmarks.papers.private_knn:paper",
}


def find_papers(name: str) -> list[Paper]:
    """The named paper, or every one for "all". Raises InvalidInput for an unknown name."""
    if name != "all" and name not in PAPERS:
        raise InvalidInput(f"paper is {name!r}; allowed: list, all, {', '.join(PAPERS)}")
    found = []
    for where in PAPERS.values() if name == "all" else [PAPERS[name]]:
        module, function = where.split(":")
        made: Callable[[], Paper] = getattr(import_module(module), function)
        found.append(made())
    return found
