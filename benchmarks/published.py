"""What the PATE papers printed, what this project computes on the same votes, and the difference.

    CONCLAVE_DATA=... python benchmarks/published.py

The votes of 250 MNIST and Adult teachers of Papernot et al. 2018 are public; those of SVHN and Glyph are not to be had,
and their rows say so. The 2017 figures are held against the first rows of the 2018 counts of the same MNIST ensemble:
which queries were charged in 2017 is published for 100 other ones only. "expected" weighs
each query by its probability of an answer, as the tables do; every epsilon is converted as its paper converts.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # rows of a JSON file

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.mechanisms.confident_gnmax import ConfidentGNMax
from protocols.mechanisms.lnmax import LNMax
from protocols.research.data_dependent import DATA_DEPENDENT
from protocols.research.evidence import Figures, QueryVotes, Units
from protocols.research.published import moments2017, papernot2018
from protocols.research.smooth_sensitivity.gnss import corrected_cost, understated_published_cost

PRINTED = Path(__file__).parents[1] / "tests" / "vectors" / "published.json"
# The moments among which the published program of 2017 chose; the accountant here chooses among 128.
_MOMENTS_2017 = np.arange(1, 9)
# LNMax of Papernot et al. 2017, Figure 4: Laplace noise of scale 20 votes.
_GAMMA = 0.05
# How the sanitised figures of Table 2 were released: order * beta as printed, and sigma_ss.
_RELEASES, _ORDER_TIMES_BETA = PRINTED.with_name("gnss.json"), {"MNIST": 0.46, "Adult": 0.48}


@dataclass(frozen=True)
class Row:
    """One printed figure beside ours; ours: None where the votes are not to be had."""

    figure: str
    printed: float
    ours: float | None

    @property
    def words(self) -> str:
        """The row as it is printed."""
        if self.ours is None:
            return f"{self.figure:84} {self.printed:9.3f} not measured: no votes"
        return f"{self.figure:84} {self.printed:9.3f} {self.ours:9.3f} {self.ours - self.printed:+9.3f}"


def rows(votes: Path) -> list[Row]:
    """Every printed figure that an accountant here computes; votes: the folder with the papers' votes."""
    printed = json.loads(PRINTED.read_text())
    made: list[Row] = []
    for row in printed["pate2017"]["rows"]:
        made.append(_of_2017(row, votes))
    for row in printed["pate2018"]["rows"]:
        if row["aggregator"] == "Confident-GNMax":
            made += _of_2018(row, votes)
    return made


def counts_of(votes: Path, dataset: str) -> Float64[ndarray, "queries classes"] | None:
    """The published counts of a data set's teachers; None where they are not to be had."""
    path = votes / "pate2018" / f"{dataset.lower()}_250_teachers.npy"
    return np.load(path) if path.exists() else None


def confident_figures(
    counts: Float64[ndarray, "queries classes"], mechanism: ConfidentGNMax, *, delta: float
) -> Figures:
    """What the accountant papernot2018 says of a record with one vote, all queries being answered."""
    evidence = QueryVotes(
        mechanism=mechanism,
        counts=counts,
        abstentions=False,
        answered=np.ones(len(counts), dtype=bool),
        student_votes=None,
    )
    units = Units(
        sensitivity=np.ones(1),
        cast=np.ones(int(counts[0].sum())),
        delta=np.array([delta]),
        present=np.ones((1, len(counts)), dtype=bool),
        own_votes=None,
    )
    return DATA_DEPENDENT["papernot2018"].figures(evidence, units).for_research()


def _of_2017(row: dict[str, Any], votes: Path) -> Row:
    called = f"2017, {row['dataset']}, LNMax gamma {_GAMMA:g}, {row['queries']:,} queries, epsilon"
    counts = counts_of(votes, row["dataset"])
    if counts is None:
        return Row(called, row["eps"], None)
    total = moments2017.total_log_moments(
        counts[: row["queries"]], _MOMENTS_2017, gamma=LNMax(gamma=_GAMMA).gamma, sensitivity=np.ones(1)
    ).for_research()[0]
    return Row(called, row["eps"], float(((total - np.log(row["delta"])) / _MOMENTS_2017).min()))


def _of_2018(row: dict[str, Any], votes: Path) -> list[Row]:
    called, counts = f"2018, {row['dataset']}, {row['queries']:,} queries", counts_of(votes, row["dataset"])
    printed = [
        ("Table 1, answered (ours: expected)", row["answered"]),
        ("Table 1, epsilon (ours: expected)", row["eps"]),
        ("Table 2, epsilon", row.get("table2_eps", row["eps"])),
        ("Table 2, order", row["order"]),
        ("Table 2, sanitised epsilon, at its published cost", row["sanitised"]),
        ("Table 2, sanitised epsilon (ours: at the corrected cost)", row["sanitised"]),
    ]
    ours: list[float | None] = [None] * len(printed)
    if counts is not None:
        asked = counts[: row["queries"]].astype(np.float64)
        sigma, test, threshold = float(row["sigma2"]), float(row["sigma1"]), float(row["T"])
        mechanism = ConfidentGNMax(sigma=sigma, sigma_threshold=test, threshold=threshold)
        answers = papernot2018.answer_probability(
            asked.max(axis=1), sigma_threshold=test, threshold=threshold
        ).for_research()
        least = confident_figures(asked, mechanism, delta=row["delta"]).expected_mironov
        assert least is not None  # the accountant's mechanism has a threshold
        epsilon, order = float(least.epsilon[0]), float(least.order[0])
        release = {
            "order": row["order"],
            "beta": _ORDER_TIMES_BETA[row["dataset"]] / row["order"],
            "sigma_ss": json.loads(_RELEASES.read_text())["table2_inputs"][row["dataset"]]["sigma_ss"],
        }
        costs = (float(cost(**release)) for cost in (understated_published_cost, corrected_cost))
        ours = [float(answers.sum()), epsilon, epsilon, order, *(epsilon + cost for cost in costs)]
    return [Row(f"{called}, {name}", value, mine) for (name, value), mine in zip(printed, ours, strict=True)]


def main() -> None:
    """Prints the table."""
    if "CONCLAVE_DATA" not in os.environ:
        print("not measured: CONCLAVE_DATA is not set")
        return
    print(f"{'figure':84} {'printed':>9} {'ours':>9} {'difference':>9}")
    for row in rows(Path(os.environ["CONCLAVE_DATA"]) / "pate_votes"):
        print(row.words)


if __name__ == "__main__":
    main()
