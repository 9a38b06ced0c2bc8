"""What one hospital does to a study in which records vote, if every sum must be one that its units could send.

    python -m benchmarks.made_up_records --data-dir DATA [--sets heart_disease,breast_cancer] [--kind columns]
        [--seeds 5]

A hospital of one seat makes up records that are valid, as many as it has: nothing that checks sums can tell them from
records of patients. Candidates are rows of the public pool, as they are and three times as far from its mean, with
every label. "Opposed" is the candidate that points most against the sum of the hospital's own records, "opposed to
all" the one most against everybody's, which a hospital cannot know; "several" are chosen one after the other so that
the sum of all comes closest to minus itself. "Any vector" is no sum of records: minus ten times everybody's sum, which
`clear` and `two_server` refuse; "norm alone" is as much of that as the norm of so many units allows, which is all that
is checked of graded features (of cells more is, and it is refused).
Accuracies are the usual student's, epsilon 1.

Beside each, how it would be seen. "Apart" is how far the hospital's mean contribution is from the mean of all others,
over the distance within which 99 % of as many records lie that are drawn at random from the others: a bound on n
plausible units refuses what is above 1. It needs each hospital's sum. "Halves" is how often two random halves of the
hospitals, each released with noise of its own at half the epsilon, lie further apart than 99 % of such halves of honest
hospitals.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.queries.choice import QueryChoice, make_queries
from coordinator.students import student_kind, usual_table_student
from protocols.labelling.replay import replay
from protocols.labelling.stored_votes import RecordSums
from protocols.levels.simulated import drawn_noise
from protocols.study.column_queries import bare_columns
from protocols.study.levels import Clear
from protocols.study.record_study import ANY_SIGNED, RecordVotesPlan, record_study
from protocols.study.released_noise import noise_of_mean
from protocols.study.study import Study
from protocols.sums.blocks import Blocks
from protocols.sums.contributions import contribution_sum, said
from simulations import datasets
from simulations.datasets.dataset import Dataset, DatasetRequest
from simulations.setup.partition import BySite, Iid, partition
from simulations.stages.record_votes import soft_pool_labels

_DELTA, _DRAWS, _QUANTILE = 1e-5, 400, 0.99
Sums = Int64[ndarray, "parties rows columns"]


@dataclass(frozen=True, eq=False)
class _Setting:
    """One seed's study. units: what each record of each hospital says; candidates: what made-up records say."""

    data: Dataset
    study: Study
    queries: Blocks
    units: list[Sums]
    turned: Sums
    candidates: Sums
    attacker: int
    seed: int

    @property
    def sums(self) -> Sums:
        """Every hospital's honest sum."""
        return np.array([each.sum(axis=0) for each in self.units])


def setting(name: str, kind: str, *, seed: int, data_dir: Path, epsilon: float = 1.0) -> _Setting:
    """Hospitals are the data's sites, or 20 alike; the attacker is the one whose size is nearest to the median."""
    data = datasets.load(name, DatasetRequest(data_dir=data_dir, seed=seed))
    if data.private_sites is None:
        rows = partition(data, parties=20, scheme=Iid(), seed=seed)
    else:
        rows = [each for each in partition(data, parties=None, scheme=BySite(), seed=seed) if len(each) > 1]
    population, pool = sum(map(len, rows)), data.public_inputs

    def study_of(queries: Blocks) -> Study:
        plan = RecordVotesPlan(
            name=name, classes=data.classes, unit="record", population=population, queries=queries, rule="exhaustive",
            level=Clear(), quorum=len(rows),
        )  # fmt: skip
        seats = len(rows)
        return record_study(
            plan, names=tuple(map(str, range(seats))), epsilon=np.full(seats, epsilon), delta=np.full(seats, _DELTA)
        )

    queries = make_queries(
        pool, data.columns or bare_columns(pool.shape[1]), QueryChoice(kind=kind), population=population,
        classes=data.classes, noise=noise_of_mean(study_of(ANY_SIGNED)) if kind == "graded" else None,
    )  # fmt: skip
    study = study_of(queries)

    attacker = int(np.argsort([len(each) for each in rows])[len(rows) // 2])
    weight = round(float(study.weights[attacker]) * study.units)

    def alone(inputs: Float32[ndarray, "records features"], labels: Int64[ndarray, " records"]) -> Sums:
        each = said(queries, inputs, labels, classes=data.classes)
        return np.array(
            [
                contribution_sum(queries, each[[at]], None, weight_units=weight, classes=data.classes, fewest=0)
                for at in range(len(each))
            ]
        )

    mine = rows[attacker]
    centre = pool.mean(axis=0)
    made = np.concatenate([pool[:200], (centre + 3 * (pool[:200] - centre)).astype(np.float32)])
    return _Setting(
        data, study, queries,
        [alone(data.private_inputs[each], data.private_labels[each]) for each in rows],
        alone(data.private_inputs[mine], (data.private_labels[mine] + 1) % data.classes),
        np.concatenate([alone(made, np.full(len(made), label)) for label in range(data.classes)]),
        attacker, seed,
    )  # fmt: skip


def accuracy(of: _Setting, sums: Sums) -> float:
    """The usual student's, if hospitals send these sums."""
    population = sum(map(len, of.units))
    result = replay(
        of.study, RecordSums(of.study.classes, list(sums)), noise=drawn_noise(of.study, seed=of.seed), presence=None
    )
    pool = of.data.public_inputs
    soft = soft_pool_labels(of.study, result.labelling, of.queries, pool, records=population)
    student = student_kind(usual_table_student(population), device="cpu").fit(
        pool, soft.probabilities.astype(np.float32), unlabelled=pool[:0], classes=of.data.classes, seed=of.seed
    )
    return float((student.predict(of.data.test_inputs) == of.data.test_labels).mean())


def attacks(of: _Setting) -> dict[str, Int64[ndarray, "rows columns"]]:
    """What the attacker sends, by name."""
    sums, at = of.sums, of.attacker
    count, others = len(of.units[at]), sums.sum(axis=0) - sums[at]
    flat = of.candidates.reshape(len(of.candidates), -1).astype(np.float64)

    def against(direction: ndarray) -> Int64[ndarray, "rows columns"]:
        return of.candidates[int((flat @ direction.ravel().astype(np.float64)).argmin())]

    chosen = np.zeros_like(sums[at])
    aim = -sums.sum(axis=0).astype(np.float64)
    for _ in range(count):
        left = (aim - others - chosen).ravel()
        chosen = chosen + of.candidates[int((2 * flat @ left - (flat**2).sum(axis=1)).argmax())]
    return {
        "its sum": sums[at],
        "its records, labels turned": of.turned.sum(axis=0),
        "one opposed record, n times": count * against(sums[at]),
        "one opposed to all, n times": count * against(sums.sum(axis=0)),
        "several, opposed to all": chosen,
        "norm alone": _of_norm(-sums.sum(axis=0), count * _weight(of)),
        "any vector": -10 * sums.sum(axis=0),
    }


def _weight(of: _Setting) -> int:
    return round(float(of.study.weights[of.attacker]) * of.study.units)


def _of_norm(direction: Int64[ndarray, "rows columns"], most: int) -> Int64[ndarray, "rows columns"]:
    return np.trunc(direction * (most / np.linalg.norm(direction))).astype(np.int64)


def _apart(of: _Setting, sent: Int64[ndarray, "rows columns"], at: int, rng: np.random.Generator) -> float:
    """How far a hospital's mean contribution is from the others', over the distance of as many of their records."""
    rest = np.concatenate([each for seat, each in enumerate(of.units) if seat != at]).astype(np.float64)
    rest = rest.reshape(len(rest), -1)
    centre, count = rest.mean(axis=0), len(of.units[at])
    drawn = [np.linalg.norm(rest[rng.choice(len(rest), count)].mean(axis=0) - centre) for _ in range(_DRAWS)]
    return float(np.linalg.norm(sent.ravel() / count - centre) / np.quantile(drawn, _QUANTILE))


def _halves(of: _Setting, sums: Sums, rng: np.random.Generator) -> Float64[ndarray, " draws"]:
    """How far apart random halves of the hospitals are, by the mean of a unit, with each half's noise."""
    sizes, flat = np.array([len(each) for each in of.units]), sums.reshape(len(sums), -1).astype(np.float64)
    # At half the epsilon the noise is about twice as large; a record is in one half.
    sigma = 2 * noise_of_mean(of.study) * sizes.sum() * _weight(of)
    found = []
    for _ in range(_DRAWS):
        order = rng.permutation(len(sums))
        one, other = order[: len(order) // 2], order[len(order) // 2 :]
        noise = rng.normal(0, sigma, (2, flat.shape[1]))
        means = [
            (flat[part].sum(axis=0) + each) / sizes[part].sum() for part, each in zip((one, other), noise, strict=True)
        ]
        found.append(float(np.linalg.norm(means[0] - means[1])))
    return np.array(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """One table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--sets", default="heart_disease,breast_cancer")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kind", choices=("graded", "columns"), default="graded")
    asked = parser.parse_args(arguments)
    for name in asked.sets.split(","):
        found: dict[str, list[tuple[float, float, float]]] = {}
        honest: list[float] = []
        for seed in range(asked.seeds):
            of, rng = setting(name, asked.kind, seed=seed, data_dir=asked.data_dir), np.random.default_rng(seed)
            usual = float(np.quantile(_halves(of, of.sums, rng), _QUANTILE))
            honest += [_apart(of, each, at, rng) for at, each in enumerate(of.sums)]
            for what, sent in attacks(of).items():
                sums = of.sums
                sums[of.attacker] = sent
                seen = float((_halves(of, sums, rng) > usual).mean())
                found.setdefault(what, []).append((accuracy(of, sums), _apart(of, sent, of.attacker, rng), seen))
        sizes = [len(each) for each in of.units]
        print(
            f"\n{name}, {asked.kind}: {sizes[of.attacker]} of {sum(sizes)} records, {len(sizes)} hospitals (last seed)"
        )
        for what, each in found.items():
            means = np.array(each, dtype=np.float64).mean(axis=0)
            accuracies = " ".join(f"{one[0]:.3f}" for one in each)
            print(f"  {what:28} {means[0]:.3f} ({accuracies})  apart {means[1]:.1f}  halves {means[2]:.2f}", flush=True)
        beyond = sum(each > 1 for each in honest)
        print(f"  honest hospitals: {beyond} of {len(honest)} above 1, the largest {max(honest):.1f}", flush=True)


if __name__ == "__main__":
    main()
