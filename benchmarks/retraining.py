"""Typical case beside worst case on real digits, and the label's law against one integral at a time, in one run.

    python benchmarks/retraining.py [parties [retrainings]]

Digits come with scikit-learn. 20 parties and 20 retrainings each take some seconds. The straightforward code integrates
each outcome with scipy's quad; results must agree where quad can (it cannot below e^-700).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.integrate import quad
from scipy.special import log_ndtr

from benchmarks.label_law import label_log_probabilities
from benchmarks.typical_case import retraining
from protocols.labelling.stored_votes import CastVotes
from simulations.pipeline import study_of
from simulations.progress import Reporter
from simulations.setup.experiment import experiment
from simulations.stages.inputs import DatasetInputs, Host, read_inputs
from simulations.stages.label import label_seed
from simulations.stages.vote_source import votes_source

CONFIDENCE = 1 - 1e-6


def typical_case(folder: Path, parties: int, retrainings: int) -> None:
    """One study on digits, and every party's rows."""
    settings = experiment(
        dataset="digits",
        parties=parties,
        student="none",
        budgets="4:0.5,8:0.5",
        mechanism="confident_gnmax",
        sigma=0.3 * parties,
        sigma_threshold=0.6 * parties,
        threshold=0.3 * parties,
    )
    host, reporter = Host(data_dir=None, cache_dir=folder, engine="in_process", workers=1), Reporter(quiet=True)
    inputs = read_inputs(settings, host=host, reporter=reporter)
    _, study = study_of(inputs)
    source = votes_source(inputs, host=host, reporter=reporter)
    result = label_seed(study, source.stored, seed=0, dropout=0.0, truth=source.truth)
    assert isinstance(inputs, DatasetInputs)
    assert isinstance(source.stored, CastVotes)
    start = time.perf_counter()
    found = retraining(
        study,
        inputs.dataset,
        inputs.shards,
        source.stored.votes,
        result,
        teacher=settings.teacher,
        seed=settings.data_seed,
        parties=None,
        retrainings=retrainings,
        confidence=CONFIDENCE,
        population="federation",
    ).for_research()
    elapsed = time.perf_counter() - start
    print(f"{parties} parties, {retrainings} retrainings each, {found.asked} queries asked: {elapsed:.1f} s, ", end="")
    print(f"{1e3 * elapsed / parties / retrainings:.1f} ms a retraining with all that follows")
    print(
        f"{'party':>10} {'guaranteed':>10} {'typical':>8} {'ratio':>6} {'proved':>7} {'top':>5} {'moved':>6} {'max':>4}"
    )
    for row in found.rows:
        ratio = row.epsilon_typical / row.epsilon_guaranteed
        print(
            f"{row.party:>10} {row.epsilon_guaranteed:10.3f} {row.epsilon_typical:8.3f} {ratio:6.2f} "
            f"{row.epsilon_proved:7.3f} {row.top_share:5.2f} {row.moved_share:6.2f} {row.moved_max:4d}"
        )


def one_integral_at_a_time(counts: np.ndarray, sigma: float) -> np.ndarray:
    """ln p of every class by adaptive quadrature."""
    n = counts / sigma
    logs = np.empty(len(n))
    for c in range(len(n)):

        def integrand(t: float, c: int = c) -> float:
            return float(np.exp(-((t - n[c]) ** 2) / 2 + log_ndtr(t - np.delete(n, c)).sum()) / np.sqrt(2 * np.pi))

        logs[c] = np.log(quad(integrand, n.min() - 9, n.max() + 12, epsabs=0, epsrel=1e-11, limit=200)[0])
    return logs


def label_law(rows: int) -> None:
    """Random histograms of 250 votes in 10 classes at sigma 40."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(250, rng.dirichlet(np.full(10, 0.3), size=rows)).astype(np.float64)
    start = time.perf_counter()
    ours = label_log_probabilities(counts, sigma=40.0).for_research()
    fast = time.perf_counter() - start
    start = time.perf_counter()
    slow_rows = max(1, rows // 50)
    theirs = np.stack([one_integral_at_a_time(row, 40.0) for row in counts[:slow_rows]])
    slow = (time.perf_counter() - start) * rows / slow_rows
    error = np.abs(ours[:slow_rows] - theirs).max()
    print(f"label law, {rows} histograms: {fast:.3f} s, one integral at a time {slow:.1f} s (scaled), ", end="")
    print(f"ratio {slow / fast:.0f}, largest difference of ln p {error:.1e}")
    assert error < 1e-8


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    label_law(2000)
    with tempfile.TemporaryDirectory() as name:
        typical_case(Path(name), *(given + [20, 20][len(given) :]))
