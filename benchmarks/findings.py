"""Several findings at once: teachers in three ways, one noisy sum of all, each finding in a study of its own, DP
gradient descent, all pooled.

    python -m benchmarks.findings --out runs/findings [SET ...]

AUROC on test records, 5,000 private ones, 2,000 in the pool, 10 hospitals of one budget, delta 1e-5, unit record,
replace-one, five splits. Models are linear in public features phi; teachers and their students in the usual features.
binary, powerset, tau: `run --findings-by`, 25 teachers a hospital. one_sum: `run --votes-by record`, released
scores. each_alone: a study for each finding at epsilon over their number (basic composition; composed as Gaussian
mechanisms they have one_sum's noise). dp_gradient_descent: a curator's full-batch descent on logistic losses of all
findings, gradients of norm 1 at most (Abadi et al. 2016, without sampling), exactly accounted (Dong et al. 2022); steps
and rate are the best of six on the test records of each set and epsilon, which favours it, as does the choice of the
teachers' noise and tau. pooled: logistic regression on phi, without privacy.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit

from party.teachers.finding_scores import auroc
from protocols.bounds.gaussian import gdp_epsilon
from protocols.study.findings import NOT_KNOWN
from protocols.sums.blocks import NORM_STEPS, Blocks
from protocols.sums.contributions import said
from simulations.datasets import load
from simulations.datasets.dataset import Dataset, DatasetRequest
from simulations.findings import findings_found
from simulations.pipeline import released_students, study_of
from simulations.progress import Reporter
from simulations.setup.experiment import experiment, experiment_budgets, units_of
from simulations.stages.inputs import DatasetInputs, Host
from simulations.stages.record_cells import RecordCells
from simulations.stages.record_votes import label_record_seed
from simulations.stages.vote_source import labelled_source, record_study_of, votes_source

TEACHERS = 25
# By way: mechanisms, tau and noise that are tried; sigma in shares of the votes cast.
WAYS: dict[str, tuple[dict[str, object], ...]] = {
    "binary": ({}, {"mechanism": "gnmax", "sigma": 0.4}),
    "powerset": ({}, {"mechanism": "gnmax"}),
    "tau": ({"tau": 1.0}, {"tau": 1.8}, {"tau": 1.8, "sigma": 0.2}),
}
SETS = ("glyph_sets", "diabetes130_outcomes")
EPSILONS, SEEDS, DELTA, PARTIES = (1.0, 2.0, 8.0), range(5), 1e-5, 10
_DESCENTS = tuple(product((20, 60), (1.0, 4.0, 16.0)))

Scores = np.ndarray


def one_sum(dataset: Dataset, *, epsilon: float, seed: int) -> tuple[Scores, Blocks, float]:
    """Scores of the test records, the features, and the macro AUROC of the pool's labels."""
    settings = experiment(votes_by="record", parties=PARTIES, budgets=f"{epsilon!r}", student="none", data_seed=seed)
    shards = [[each] for each in np.array_split(np.arange(len(dataset.private_labels)), PARTIES)]
    inputs = DatasetInputs(settings, dataset, shards)
    study = record_study_of(inputs, experiment_budgets(settings))
    cells = tuple(
        said(inputs.query_map, dataset.private_inputs[each], dataset.private_labels[each], classes=study.classes)
        for (each,) in shards
    )
    units = tuple(units_of("record", dataset, each) for (each,) in shards)
    stored = RecordCells(dataset.labelled, inputs.population, inputs.query_map, cells, units)
    found = label_record_seed(study, stored, pool=dataset.public_inputs, seed=seed, dropout=0.0, truth=None)
    assert found.soft is not None
    phi = phi_of(inputs.query_map, dataset.test_inputs)
    tests = np.stack([each.scores.probabilities(phi)[:, 1] for each in found.soft.each if each.scores], axis=1)
    labels = dataset.public_labels.reshape(len(dataset.public_labels), -1)
    pool = np.stack([each.probabilities[:, 1] for each in found.soft.each], axis=1)
    return tests, inputs.query_map, macro(pool, labels)


def of_teachers(dataset: Dataset, *, seed: int) -> Iterator[dict[str, object]]:
    """Rows of each way, with everything that is tried."""
    folder = Path(os.environ.get("CONCLAVE_CACHE", "runs/cache"))
    host, reporter = Host(data_dir=None, cache_dir=folder, engine="in_process", workers=1), Reporter(quiet=True)
    holdings = np.array_split(np.arange(len(dataset.private_labels)), PARTIES)
    seen = {"features": "auto", "teacher_features": True, "student_features": True} if dataset.kind == "image" else {}
    shards = [np.array_split(each, TEACHERS) for each in holdings]
    for way, epsilon in product(WAYS, EPSILONS):
        for tried in WAYS[way]:
            given: dict[str, object] = {**tried, "findings_by": way, "budgets": f"{epsilon!r}", "data_seed": seed}
            if "sigma" in tried:
                given["sigma"] = float(tried["sigma"]) * PARTIES * TEACHERS  # type: ignore[arg-type]  # a number
            settings = experiment(
                parties=PARTIES, teachers_per_party=TEACHERS, student="logistic_regression", **seen, **given
            )
            inputs = DatasetInputs(settings, dataset, shards, None, host)
            _, study = study_of(inputs)
            source = votes_source(inputs, host=host, reporter=reporter)
            result = labelled_source(study, source, seed, settings, host)
            students = released_students(settings, source, [result], host)
            found = findings_found(source.studied or dataset, [result.said], students, None)  # type: ignore[list-item, arg-type]
            assert found is not None
            assert result.said is not None
            yield {
                "set": dataset.name,
                "method": " ".join([way, *(f"{key} {value}" for key, value in tried.items())]),
                "epsilon": epsilon, "seed": seed, "auroc": found.macro[0], "micro": found.micro[0],
                "labels": int((result.said >= 0).any(axis=1).sum()), "label_auroc": found.label_macro[0],
            }  # fmt: skip


def phi_of(blocks: Blocks, inputs: np.ndarray) -> np.ndarray:
    return blocks.of_records(inputs) / NORM_STEPS


def mu_of(epsilon: float) -> float:
    return float(brentq(lambda mu: _epsilon(mu) - epsilon, 1e-3, 50.0))


def each_alone(dataset: Dataset, share: float, *, seed: int) -> float:
    """The mean AUROC of studies of one finding each, at this epsilon."""
    found = (auroc(one_sum(task, epsilon=share, seed=seed)[0][:, 0], task.test_labels) for task in dataset.tasks)
    return float(np.mean([each for each in found if each is not None]))


def descended(phi: np.ndarray, labels: np.ndarray, *, epsilon: float, seed: int, steps: int, rate: float) -> np.ndarray:
    """Weights of a curator's full-batch descent; what is not known has no gradient."""
    rng, weights = np.random.default_rng([seed, 29]), np.zeros((phi.shape[1], labels.shape[1]))
    noise = 2 * steps**0.5 / mu_of(epsilon)
    for _ in range(steps):
        errors = np.where(labels == NOT_KNOWN, 0.0, expit(phi @ weights) - labels)
        norms = np.linalg.norm(phi, axis=1) * np.linalg.norm(errors, axis=1)
        gradient = phi.T @ (errors / np.maximum(norms, 1.0)[:, None]) + rng.normal(0.0, noise, weights.shape)
        weights -= rate * gradient / len(phi) * phi.shape[1] ** 0.5
    return weights


def pooled(phi: np.ndarray, dataset: Dataset, tests: np.ndarray) -> float:
    from sklearn.linear_model import LogisticRegression

    found = []
    for at in range(len(dataset.findings)):
        known = dataset.private_labels[:, at] != NOT_KNOWN
        model = LogisticRegression(C=100.0, max_iter=2000).fit(phi[known], dataset.private_labels[known, at])
        found.append(auroc(model.decision_function(tests), dataset.test_labels[:, at]))
    return float(np.mean([each for each in found if each is not None]))


def macro(scores: Scores, labels: np.ndarray) -> float:
    found = [auroc(scores[:, at], labels[:, at]) for at in range(labels.shape[1])]
    return float(np.mean([each for each in found if each is not None]))


def rows(name: str, seed: int) -> Iterator[dict[str, object]]:
    """The figures of one split."""
    folder = os.environ.get("CONCLAVE_DATA")
    request = DatasetRequest(
        seed=seed, data_dir=Path(folder) if folder else None, private_size=5000, public_size=2000, test_size=2000
    )
    dataset = load(name, request)
    several = len(dataset.findings)
    yield from of_teachers(dataset, seed=seed)
    for epsilon in EPSILONS:
        tests, blocks, labels = one_sum(dataset, epsilon=epsilon, seed=seed)
        phi, shown = phi_of(blocks, dataset.private_inputs), phi_of(blocks, dataset.test_inputs)
        figures = {
            "one_sum": macro(tests, dataset.test_labels),
            "each_alone": each_alone(dataset, epsilon / several, seed=seed),
            "pooled": pooled(phi, dataset, shown),
        }
        for steps, rate in _DESCENTS:
            weights = descended(phi, dataset.private_labels, epsilon=epsilon, seed=seed, steps=steps, rate=rate)
            figures[f"descent {steps} {rate:g}"] = macro(shown @ weights, dataset.test_labels)
        for method, value in figures.items():
            row = {"set": name, "method": method, "epsilon": epsilon, "seed": seed, "auroc": value}
            yield row | ({"label_auroc": labels, "labels": len(dataset.public_labels)} if method == "one_sum" else {})


def _epsilon(mu: float) -> float:
    return float(gdp_epsilon(np.array([mu]), np.array([DELTA]))[0])


def main() -> None:
    """Runs every set, and prints means; a split that --out holds is not run again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", help=" ".join(SETS))
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    found = []
    for name, seed in product(asked.sets or SETS, SEEDS):
        path = asked.out / f"{name}-{seed}.csv"
        if not path.exists():
            pd.DataFrame(list(rows(name, seed))).to_csv(path, index=False)
            print(path, flush=True)
        found.append(pd.read_csv(path))
    both = pd.concat(found)
    print(both.pivot_table(index=["set", "method"], columns="epsilon", values="auroc").round(4).to_string())


if __name__ == "__main__":
    main()
