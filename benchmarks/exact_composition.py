"""Exact composition: how long it takes, what it buys, and how far its epsilon may lie above the truth.

    python benchmarks/exact_composition.py

Times: 250 parties of three weights and 1,000 queries, without a cache, from disk and from memory. Margins: epsilon of
the bound against that of one fixed policy, which is a lower bound: the most informative single pair of label_pairs.py's
family at every query, whatever the answers, composed by dp_accounting with losses rounded down.
"""

from __future__ import annotations

import os
import tempfile
import time

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from protocols.bounds import compositions
from protocols.bounds.exact_composition import compose
from protocols.bounds.label_cones import log_label_probabilities
from protocols.bounds.label_pairs import PairKind
from protocols.budgets.accountant import accountant
from protocols.budgets.filter import BudgetFilter, budget_filters
from protocols.mechanisms import Sensitivity, ThresholdedGNMax

DELTA = 1e-5


def filters(name: str) -> BudgetFilter:
    """The filters of 250 parties of three budgets."""
    group = np.arange(250) % 3
    return budget_filters(
        accountant=accountant(name),
        mechanism=ThresholdedGNMax(sigma=52.5, threshold=150.0),
        sensitivity=Sensitivity.always(np.array([0.5, 1.0, 1.5])[group], delta_squared=2),
        epsilon=np.array([1.0, 2.0, 3.0])[group],
        delta=np.full(250, DELTA),
        view="label",
        classes=10,
        query_limit=1000,
        total_weight=250.0,
        answer_rate=1.0,
    )


def timed(what: str) -> None:
    """Prints the time of one solution of all filters, with the epsilons that they guarantee."""
    start, used = time.perf_counter(), time.process_time()
    found = filters("exact_composition")
    reached = found.epsilon_guaranteed.max()
    passed, used = time.perf_counter() - start, time.process_time() - used
    print(f"{what:24} {passed:7.3f} s, {used:.3f} s of processor: caps {found.cap[:3].tolist()}, epsilon {reached:.4f}")


def fixed_policy_epsilon(shift: float, queries: int) -> float:
    """epsilon of the pair of largest chi-squared divergence, at every query: a lower bound of the game."""
    x, y = (each.ravel() for each in np.meshgrid(*2 * [np.linspace(-1, 4, 201)]))
    p, q = (np.exp(log_label_probabilities(*at)) for at in ((x, y), (x - shift, y + shift)))
    best = int(((p - q) ** 2 / q).sum(axis=0).argmax())
    step = shift / 400
    losses = np.floor(np.log(p[:, best] / q[:, best]) / step).astype(int)
    mass: dict[int, float] = {}
    for loss, probability in zip(losses.tolist(), p[:, best].tolist(), strict=True):
        mass[loss] = mass.get(loss, 0.0) + probability
    one = PrivacyLossDistribution(pld_pmf.create_pmf(mass, step, 0.0, False))
    return float(one.self_compose(queries).get_epsilon_for_delta(DELTA))


def main() -> None:
    """Prints times, numbers of queries and margins."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CONCLAVE_CACHE"] = folder
        timed("three weights, no cache")
        compositions._kept.cache_clear()
        timed("from disk")
        timed("from memory")
        converted = filters("label_only").affordable(np.zeros(250, np.int64), limit=1000)[:3].tolist()
        print(f"by the Renyi filter: {converted}")
        print(f"{'shift':>8} {'queries':>8} {'bound':>9} {'fixed policy':>13} {'above it':>9}")
        for shift, queries in ((1 / 52.5, 16), (1 / 52.5, 128), (1 / 52.5, 530), (1 / 40, 310), (1 / 40, 640)):
            bound = compose(PairKind(3), shift, queries=queries).epsilon(queries, DELTA)
            least = fixed_policy_epsilon(shift, queries)
            print(f"{shift:8.4f} {queries:8} {bound:9.4f} {least:13.4f} {bound / least - 1:9.2%}")


if __name__ == "__main__":
    main()
