"""Replay: milliseconds per setting, a sweep of 1,000 settings, and the memory of 10,000 parties x 10,000 queries.

    python benchmarks/replay.py

Votes are simulated (right with probability 0.8). The vectorised replay stands beside straightforward code that
loops over queries and parties, in the same run; both must release the same labels. Bounded: about a minute.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import numpy as np

from protocols.labelling.replay import replay
from protocols.labelling.stored_votes import CastVotes
from protocols.mechanisms import ThresholdedGNMax
from protocols.noise import Noise, simulated
from protocols.study.study import Study
from protocols.votes import ABSTAIN
from simulations.setup.experiment import experiment, experiment_budgets, make_study


def make_votes(parties: int, queries: int, classes: int = 10) -> CastVotes:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, classes, queries).astype(np.int8)
    votes = np.empty((parties, 1, queries), dtype=np.int8)
    for party in range(parties):
        right = rng.random(queries) < 0.8
        votes[party, 0] = np.where(right, truth, rng.integers(0, classes, queries))
    return CastVotes(classes, votes)


def one_stream(noise: Noise) -> Callable[[object], Noise]:
    """The noise of a level where it does not matter who voted: all batches draw from one stream, in order."""
    return lambda voting: noise


def setting(stored: CastVotes, **changes: object) -> Study:
    values: dict[str, object] = {"parties": len(stored.votes), "weights": "exhaustive", **changes}
    settings = experiment(**values)
    return make_study(settings, experiment_budgets(settings), classes=stored.classes, queries=stored.queries)


def straightforward(study: Study, stored: CastVotes, seed: int, asked: list[int]) -> list[int]:
    """One query, one party and one class at a time; the batches are those that the replay asked."""
    rng = np.random.default_rng(seed)
    mechanism = study.mechanism
    assert isinstance(mechanism, ThresholdedGNMax)
    weights = study.weights.tolist()
    labels, start = [], 0
    for size in asked:
        noise = rng.standard_normal((size, stored.classes))
        for query in range(size):
            counts = [0.0] * stored.classes
            for party, weight in enumerate(weights):
                counts[stored.votes[party, 0, start + query]] += weight
            noisy = [count + mechanism.sigma * drawn for count, drawn in zip(counts, noise[query], strict=True)]
            labels.append(int(np.argmax(noisy)) if max(noisy) >= mechanism.threshold else ABSTAIN)
        start += size
    return labels


def main(*, queries: int = 9000, settings: int = 1000, many: int = 10_000) -> None:
    """Prints times. many: parties, and queries, of the run that measures memory."""
    stored = make_votes(250, queries)
    # A budget so large that all queries are asked, which is the most work that a setting can be.
    everything = {"sigma": 400.0, "budgets": "2:0.34,4:0.43,6:0.23"}
    _ = setting(stored, **everything).budgets  # loads the label-only table
    stored.group_counts(np.zeros(250, dtype=int), 1)
    times, asked = [], 0
    for index in range(20):
        start = time.perf_counter()
        study = setting(stored, **{**everything, "sigma": 400.0 + index})
        result = replay(study, stored, noise=one_stream(simulated(np.random.default_rng(index))), presence=None)
        times.append(time.perf_counter() - start)
        asked = sum(size for size, _ in result.labelling.batches)
    print(
        f"replay, 250 parties x {queries:,} queries x 10 classes ({asked} asked): median "
        f"{np.median(times) * 1e3:.1f} ms a setting (budgets, weights, accounts, aggregation; "
        f"min {min(times) * 1e3:.1f}, max {max(times) * 1e3:.1f})"
    )

    study = setting(stored, **everything)
    start = time.perf_counter()
    result = replay(study, stored, noise=one_stream(simulated(np.random.default_rng(7))), presence=None)
    fast = time.perf_counter() - start
    sizes = [size for size, _ in result.labelling.batches]
    start = time.perf_counter()
    slow_labels = straightforward(study, stored, 7, sizes)
    slow = time.perf_counter() - start
    assert slow_labels == result.labelling.labels[: len(slow_labels)].tolist()
    print(f"straightforward code, same labels: {slow:.2f} s; ratio {slow / fast:.0f}")

    start = time.perf_counter()
    released = 0
    rules = ("uniform", "proportional", "exhaustive")
    for index in range(settings):
        study = setting(
            stored,
            weights=rules[index % 3],
            sigma=30.0 + index % 50,
            budgets=f"{1 + index % 7 / 4}:0.34,2:0.43,{3 + index % 11 / 3}:0.23",
        )
        noise = simulated(np.random.default_rng(index))
        released += int((replay(study, stored, noise=one_stream(noise), presence=None).labelling.labels >= 0).sum())
    print(f"sweep of {settings:,} settings: {time.perf_counter() - start:.1f} s "
          f"({released / settings:.0f} labels a setting)")  # fmt: skip

    start = time.perf_counter()
    large = make_votes(many, many)
    made = time.perf_counter() - start
    start = time.perf_counter()
    for budgets in ("1:0.34,2:0.43,3:0.23", "lognormal:2,0.3"):
        study = setting(large, budgets=budgets)
        result = replay(study, large, noise=one_stream(simulated(np.random.default_rng(0))), presence=None)
        took = time.perf_counter() - start
        print(
            f"{many:,} parties x {many:,} queries, budgets {budgets}: {(result.labelling.labels >= 0).sum()} labels, "
            f"{took:.1f} s (votes made in {made:.0f} s)"
        )
        start = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of this process: {peak:.2f} GiB")


if __name__ == "__main__":
    main()
