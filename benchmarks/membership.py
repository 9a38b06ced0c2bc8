"""The membership attack: its speed, and what the strongest attack (LiRA, with whole runs as shadows) finds.

    python benchmarks/membership.py [shadows]

First the areas, intervals and rates of 10,000 members and 10,000 others, against pair-by-pair code in the same run;
results must be equal. Then LiRA on the embedded digits: `shadows` (default 24) runs, each with teachers, votes and
noise of its own on a random half of the records; each run in turn is the target, the rest are its shadows. Members and
others of a target are exchangeable, so here there is no shift between parts. The same with models that were trained on
the halves without privacy. A run takes some seconds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from membership_lira import likelihood_ratios

from coordinator.students import student_kind
from coordinator.students.student import one_hot
from simulations.membership.attack import ATTACK_SCORES, area_ceiling, loss, true_positive_ceiling
from simulations.membership.report import area, rates
from simulations.pipeline import run, study_of
from simulations.progress import Reporter
from simulations.setup.experiment import experiment
from simulations.setup.partition import parse_partition, partition
from simulations.stages.inputs import DatasetInputs, Host, load_dataset

EPSILON, DELTA = 8.0, 1e-5
PARTIES, STUDENT = 40, "random_forest"
# A forest of 200 trees tells no probability below 1/200 from 0.
CLIP = np.log(400.0)


def straightforward(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The area and DeLong's variance from the kernel, member by member."""
    of_members = np.array([((others < m).sum() + (others == m).sum() / 2) / len(others) for m in members])
    of_others = np.array([((members > o).sum() + (members == o).sum() / 2) / len(members) for o in others])
    variance = of_members.var(ddof=1) / len(members) + of_others.var(ddof=1) / len(others)
    return float(of_members.mean()), float(variance)


def speed() -> None:
    rng = np.random.default_rng(0)
    probabilities, labels = rng.dirichlet(np.ones(10), size=20_000), rng.integers(10, size=20_000)
    start = time.perf_counter()
    scores = {name: score(probabilities, labels) for name, score in ATTACK_SCORES.items()}
    scoring = time.perf_counter() - start
    members, others = np.split(scores["loss"], 2)
    start = time.perf_counter()
    found = area(members, others)
    rates(members, others)
    fast = time.perf_counter() - start
    start = time.perf_counter()
    value, _ = straightforward(members, others)
    slow = time.perf_counter() - start
    assert abs(value - found.value) < 1e-12
    print(
        f"10,000 + 10,000 records, 10 classes: both scores {1e3 * scoring:.0f} ms; area, interval and rates "
        f"{1e3 * fast:.0f} ms, pair by pair {1e3 * slow:.0f} ms, ratio {slow / fast:.0f}"
    )


def shadow_scores(shadows: int) -> tuple[dict[str, np.ndarray], np.ndarray, float]:
    """loss score of every record under each shadow, with and without privacy; who was included; guaranteed epsilon."""
    settings = experiment(
        dataset="digits",
        parties=PARTIES,
        budgets=str(EPSILON),
        delta=DELTA,
        mechanism="gnmax",
        sigma=5.0,
        student=STUDENT,
        baselines=False,
    )
    rng = np.random.default_rng(0)
    scores: dict[str, list[np.ndarray]] = {"PATE": [], "no privacy": []}
    with tempfile.TemporaryDirectory() as folder:
        host = Host(data_dir=None, cache_dir=Path(folder), engine="in_process", workers=1)
        whole = load_dataset(settings, host)
        records, labels = whole.private_inputs, whole.private_labels
        included = np.argsort(rng.random((shadows, len(labels))), axis=0) < shadows // 2
        answered, epsilon = [], 0.0
        for number, mine in enumerate(included):
            half = replace(whole, private_inputs=records[mine], private_labels=labels[mine])
            holdings = partition(half, parties=PARTIES, scheme=parse_partition("iid"), seed=number)
            own = settings.changed(seeds=(number,), data_seed=number)
            inputs = DatasetInputs(own, half, [[held] for held in holdings])
            budgets, study = study_of(inputs)
            result = run(inputs, budgets=budgets, study=study, host=host, reporter=Reporter(quiet=True))
            epsilon = float(study.budgets.epsilon_guaranteed.max())
            answered.append(len(result.seeds[0].answered))
            assert result.released_student is not None
            open_model = student_kind(STUDENT).fit(
                records[mine],
                one_hot(labels[mine], whole.classes),
                unlabelled=records[:0],
                classes=whole.classes,
                seed=number,
            )
            for name, made in (
                ("PATE", result.released_student.probabilities(records)),
                ("no privacy", open_model.predict_proba(records)),
            ):
                scores[name].append(np.clip(loss(made.astype(float), labels), -CLIP, CLIP))
    print(f"{shadows} runs on halves of {len(labels)} digits, {np.mean(answered):.0f} labels released a run")
    return {name: np.stack(rows) for name, rows in scores.items()}, included, epsilon


def main(shadows: int = 24) -> None:
    speed()
    start = time.perf_counter()
    scores, included, epsilon = shadow_scores(shadows)
    print(f"{time.perf_counter() - start:.0f} s")
    at_most = true_positive_ceiling(np.asarray(0.01), epsilon=np.asarray(epsilon), delta=np.asarray(DELTA))
    print(
        f"epsilon {epsilon:.3g}: AUC at most {area_ceiling(epsilon=np.asarray(epsilon), delta=np.asarray(DELTA)):.3f}, "
        f"TPR at FPR 1 % at most {100 * at_most:.1f} %"
    )
    for name, rows in scores.items():
        ratios = []
        for target in range(shadows):
            rest = np.arange(shadows) != target
            ratios.append(likelihood_ratios(rows[target], rows[rest], included[rest]))
        for attack, found in (("loss threshold", rows), ("LiRA", np.stack(ratios))):
            mean, chance = areas_of_targets(found, included)
            hits = rates(found[included], found[~included])[1].true_positive_rate
            print(
                f"{name:10} {attack:14} AUC {mean:.3f} ({chance[0]:.3f} to {chance[1]:.3f} in 95 % of 1,000 draws of "
                f"other targets' memberships); TPR at FPR 1 % {100 * hits.value:.2f} %"
            )


def areas_of_targets(scores: np.ndarray, included: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean area over targets, and where 95 % of such means lie when each target gets another one's membership.

    Targets share records and shadows, so an interval for independent samples would be wrong.
    """
    areas = np.array([[area(row[mine], row[~mine]).value for mine in included] for row in scores])
    targets, rng = np.arange(len(scores)), np.random.default_rng(1)
    drawn = [areas[targets, rng.permutation(targets)].mean() for _ in range(1000)]
    return float(areas.diagonal().mean()), np.quantile(drawn, [0.025, 0.975])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
