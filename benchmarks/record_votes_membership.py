"""The membership game where records vote: what attackers find of one replaced record, and the ceiling of its epsilon.

    python benchmarks/record_votes_membership.py --data-dir DATA --epsilons 0.5,1,8

heart_disease with its four hospitals. The target is a record of the hospital with the fewest: of a few pairs drawn at
random, the one whose replacement moves the sums furthest. Every run draws the noise again. The control publishes
the sums without noise; it must be flagged, and nothing else may be.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from protocols.study.column_queries import column_queries, usual_bins
from protocols.study.levels import Clear
from protocols.study.record_study import RecordVotesPlan, record_study
from simulations import datasets
from simulations.datasets.request import DatasetRequest
from simulations.membership.replaced_record import Game, play
from simulations.setup.partition import BySite, partition

_DELTA = 1e-5
_CANDIDATES = 20


def main() -> None:
    """One table per epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--epsilons", default="0.5,1,8")
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--student-runs", type=int, default=200)
    parser.add_argument("--student", default="logistic_regression")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for epsilon in (float(each) for each in asked.epsilons.split(",")):
        game = _game(asked, epsilon)
        print(f"\nheart_disease, epsilon {epsilon:g} at delta {_DELTA:g}, unit record, replace-one")
        for what, noise, runs in (("private", True, asked.runs), ("control", False, 2 * asked.student_runs)):
            found = play(
                game, runs=runs, student=asked.student, student_runs=asked.student_runs, seed=asked.seed, noise=noise
            )
            for one in found.for_research():
                print(
                    f"  {what}, {one.attacker:30} {one.runs:5} runs: area {one.area.value:.3f} [{one.area.low:.3f}, "
                    f"{one.area.high:.3f}] of {one.ceiling.area:.3f}; advantage {one.advantage.value:.3f} "
                    f"[{one.advantage.low:.3f}, {one.advantage.high:.3f}] of {one.ceiling.advantage:.3f}"
                    + ("; FLAGGED" if one.flagged else "")
                )


def _game(asked: argparse.Namespace, epsilon: float) -> Game:
    data = datasets.load("heart_disease", DatasetRequest(data_dir=asked.data_dir, seed=asked.seed))
    rows = partition(data, parties=None, scheme=BySite(), seed=asked.seed)
    population = len(data.private_labels)
    queries = column_queries(data.public_inputs, data.columns, bins=usual_bins(population))
    plan = RecordVotesPlan(
        name="membership",
        classes=data.classes,
        unit="record",
        population=population,
        queries=queries,
        rule="exhaustive",
        level=Clear(),
        quorum=len(rows),
    )
    seats = len(rows)
    study = record_study(plan, names=data.site_names, epsilon=np.full(seats, epsilon), delta=np.full(seats, _DELTA))
    holdings = [(data.private_inputs[each], data.private_labels[each], None) for each in rows]
    seat = int(np.argmin([len(each) for each in rows]))
    drawn = np.random.default_rng(asked.seed).choice(len(rows[seat]), size=(_CANDIDATES, 2))
    games = [
        Game(
            study,
            queries,
            data.public_inputs,
            holdings,
            seat=seat,
            position=int(target),
            other_input=holdings[seat][0][other],
            other_label=int(holdings[seat][1][other]),
        )
        for target, other in drawn
    ]
    return max(games, key=lambda game: game.squared_move)


if __name__ == "__main__":
    main()
