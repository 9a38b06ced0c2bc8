"""Thresholded GNMax against Confident-GNMax on the votes of Papernot et al. 2018: labels against accuracy, and replays.

    CONCLAVE_DATA=... python benchmarks/one_draw.py frontier
    CONCLAVE_DATA=... python benchmarks/one_draw.py replay [--epsilon 2] [--seeds 20]

frontier: the most labels at each agreement with the plurality, both mechanisms tuned by `plan --optimise` (epsilon 2,
uniform weights, unit record, view label; MNIST at delta 1e-5, Adult at 1e-6; expected, worst-case label-only Renyi
filter). replay: labels and their accuracy against MNIST's true labels, mean and 95 % interval (Student's t) over seeds
of noise and order, by mechanism and accountant.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import scipy

from protocols.budgets.accountant import ACCOUNTANTS
from protocols.errors import InvalidInput
from protocols.labelling.stored_votes import StoredVotes, VoteCounts, load_labels, load_votes
from simulations.planning.grid import optimise_each
from simulations.planning.objective import OBJECTIVES
from simulations.planning.predict import PilotVotes, Planner
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from simulations.stages.label import label_seed

DELTAS = {"mnist": 1e-5, "adult": 1e-6}
LEVELS = (0.95, 0.97, 0.98, 0.99)
# The paper's noise for Confident-GNMax, and one draw at its label noise's budget.
SETTINGS: dict[str, dict[str, float]] = {
    "confident_gnmax": {"sigma": 40.0, "sigma_threshold": 150.0, "threshold": 200.0},
    "thresholded_gnmax": {"sigma": 52.5, "threshold": 150.0},
}
# Accountants that are tried, where they exist and hold.
TRIED = ("label_only", "exact_composition")


def votes(name: str) -> tuple[StoredVotes, int]:
    """The stored votes of one ensemble, and how many teachers it has."""
    folder = Path(os.environ["CONCLAVE_DATA"]) / "pate_votes/pate2018"
    return load_votes(folder / f"{name}_250_teachers.npy", kind=None, classes=None, parties=250)


def frontier() -> None:
    """The most labels at each agreement with the plurality."""
    print("votes   agreement  mechanism           sigma  ... threshold    labels  agreement")
    for name, delta in DELTAS.items():
        stored, parties = votes(name)
        settings = experiment(parties=parties, budgets="2", delta=delta, weights="uniform", queries=stored.queries)
        pilot = PilotVotes.of(stored, None)
        planner = Planner.of(settings, pilot, OBJECTIVES["labels"], pool=stored.queries)
        for level in LEVELS:
            for each in optimise_each(planner, min_accuracy=level, first="confident_gnmax")[0]:
                best = each.chosen
                print(f"{name:8}{level:<11}{each.mechanism:20}{best.noise.words}: {best.answered:.0f} of "
                      f"{best.accuracy:.4f}", flush=True)  # fmt: skip


def replays(epsilon: float, seeds: int) -> None:
    """Labels and accuracy on MNIST's votes, over seeds."""
    stored, parties = votes("mnist")
    truth = load_labels(
        f"{Path(os.environ['CONCLAVE_DATA']) / 'mnist/mnist.npz'}:y_test", queries=stored.queries, classes=10
    )
    assert isinstance(stored, VoteCounts)
    for mechanism, noise in SETTINGS.items():
        for account in (name for name in TRIED if name in ACCOUNTANTS):
            try:
                settings = experiment(
                    parties=parties, budgets=f"{epsilon:g}", weights="uniform", mechanism=mechanism, accountant=account,
                    **noise,
                )  # fmt: skip
                study = make_study(settings, experiment_budgets(settings), classes=10, queries=stored.queries)
            except InvalidInput as error:
                print(f"{mechanism} by {account}: {error}")
                continue
            figures = []
            for seed in range(seeds):
                order = np.random.default_rng(seed).permutation(stored.queries)
                labels = label_seed(
                    study, VoteCounts(10, stored.counts[order]), seed=seed, dropout=0.0, truth=truth[order]
                ).labelling.labels
                released = labels >= 0
                figures.append([(labels != -2).sum(), released.sum(), (labels == truth[order])[released].mean()])
            mean = np.mean(figures, axis=0)
            reach = scipy.stats.t.ppf(0.975, seeds - 1) * np.std(figures, axis=0, ddof=1) / seeds**0.5
            print(f"{mechanism} by {account}, epsilon {epsilon:g}: asked {mean[0]:.1f}, labels {mean[1]:.1f} +- "
                  f"{reach[1]:.1f}, accuracy {mean[2]:.4f} +- {reach[2]:.4f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["frontier", "replay"])
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, default=20)
    wanted = parser.parse_args()
    frontier() if wanted.what == "frontier" else replays(wanted.epsilon, wanted.seeds)
