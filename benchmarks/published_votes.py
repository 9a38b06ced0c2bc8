"""Answers at epsilon 2.0 on the PATE 2018 MNIST votes, by accountant, side by side.

    CONCLAVE_DATA=... python benchmarks/published_votes.py

Confident-GNMax, T = 200, sigma1 = 150, sigma2 = 40, delta 1e-5, uniform weights, unit record, view label; the mean
of 20 seeds of noise. The classic conversion (Mironov 2017) is what published code uses; it is made here from the
project's own pieces, for this comparison alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.budgets import accountant as accountants
from protocols.budgets.accountant import Accountant, GaussianRdp
from protocols.labelling.stored_votes import load_labels, load_votes
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from simulations.stages.label import label_seed


class ClassicConversion(GaussianRdp):
    """Gaussian RDP with Mironov's conversion, epsilon = R + ln(1/delta)/(a - 1)."""

    name = "gaussian_classic"

    @property
    def bound(self) -> str:
        return "gaussian"

    def affords(
        self, epsilon: Float64[ndarray, " units"], delta: Float64[ndarray, " units"]
    ) -> Float64[ndarray, "units orders"]:
        return epsilon[:, None] + np.log(delta)[:, None] / (self.orders - 1)


def mean_answers(accountant: Accountant, *, seeds: int = 20) -> tuple[float, float, float]:
    """Mean answers, queries asked and label accuracy under one accountant."""
    accountants.ACCOUNTANTS = {**accountants.ACCOUNTANTS, accountant.name: accountant}
    data = Path(os.environ["CONCLAVE_DATA"])
    stored, parties = load_votes(
        data / "pate_votes/pate2018/mnist_250_teachers.npy", kind=None, classes=None, parties=250
    )
    truth = load_labels(f"{data / 'mnist/mnist.npz'}:y_test", queries=stored.queries, classes=10)
    settings = experiment(
        parties=parties,
        budgets="2.0",
        weights="uniform",
        accountant=accountant.name,
        threshold=200.0,
        mechanism="confident_gnmax",
        sigma_threshold=150.0,
        sigma=40.0,
    )
    study = make_study(settings, experiment_budgets(settings), classes=10, queries=stored.queries)
    results = [label_seed(study, stored, seed=seed, dropout=0.0, truth=truth) for seed in range(seeds)]
    return (
        float(np.mean([len(result.answered) for result in results])),
        float(np.mean([result.asked for result in results])),
        float(np.mean([result.label_accuracy for result in results])),
    )


def main() -> None:
    if "CONCLAVE_DATA" not in os.environ:
        print("not measured: CONCLAVE_DATA is not set")
        return
    for accountant in (
        accountants.LabelOnly(),
        accountants.GaussianDp(),
        accountants.GaussianRdp(),
        ClassicConversion(),
    ):
        answers, asked, accuracy = mean_answers(accountant)
        print(f"{accountant.name:18} {answers:6.1f} answers of {asked:6.1f} asked, label accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
