"""Train 250 logistic-regression parties and cast five rounds of 1,000 votes, on both engines in one run.

    python benchmarks/casting.py

Parties hold 240 rows of 784 features (glyphs); the number of solver iterations is printed. Bounded: about a minute.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

from party.teachers.linear import MAX_ITERATIONS
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from simulations.engines import open_engine
from simulations.setup.partition import parse_partition, partition
from simulations.stages.cast import cast_votes


def main() -> None:
    parties = 250
    dataset = datasets.load("glyphs", DatasetRequest(seed=0, private_size=240 * parties, public_size=5000))
    holdings = partition(dataset, parties=parties, scheme=parse_partition("iid"), seed=0)
    print(f"{parties} parties x {len(holdings[0])} rows x 784 features, max_iter {MAX_ITERATIONS}, 5 rounds x 1,000")
    seconds = {}
    votes = {}
    for name in ("in_process", "flower"):
        with tempfile.TemporaryDirectory() as cache:
            start = time.perf_counter()
            cast = cast_votes(
                dataset,
                [[records] for records in holdings],
                teacher="logistic_regression",
                seed=0,
                engine=partial(open_engine, name, workers=None),
                cache_dir=Path(cache),
                on_stage=lambda stage, done, total: None,
            )
            seconds[name] = time.perf_counter() - start
            votes[name] = cast.votes
        print(f"{name}: {seconds[name]:.1f} s, {cast.trained} teachers trained", flush=True)
    assert (votes["in_process"] == votes["flower"]).all()
    print(f"flower / in_process: {seconds['flower'] / seconds['in_process']:.1f}; identical votes")


if __name__ == "__main__":
    main()
