"""Several findings in a run: a student for each, the ceiling of each, and how well a finding is told.

A finding is a task of two classes with the records that know it (Dataset.tasks). Its threshold follows from the
student's probabilities of the pool alone, so it is public: their mean, at which the expected sum of sensitivity and
specificity is largest, if the probabilities hold (Youden 1950).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any  # JSON

import numpy as np
from jaxtyping import Float32, Float64
from numpy import ndarray

from party.teachers.finding_scores import auroc
from protocols.study.findings import NOT_KNOWN, PRESENT, STATES
from protocols.sums.judging import scored
from simulations.datasets.dataset import Dataset
from simulations.groups import calibration
from simulations.stages.ceiling import Ceiling
from simulations.stages.label import mean_and_interval
from simulations.stages.students import ReleasedStudent


@dataclass(frozen=True)
class StudentsOfFindings:
    """A student for each finding, of one kind and the same pool. What it says is of all of them together."""

    each: tuple[ReleasedStudent, ...] = field(repr=False)

    @property
    def trained_on(self) -> int:
        """How many public queries have a label to learn from."""
        return self.each[0].trained_on

    @property
    def kind(self) -> str:
        """The kind of student that is trained, of the first finding where each chose its own."""
        return self.each[0].kind

    @property
    def choice(self) -> None:
        """How the kind was chosen is said of no student of several findings."""
        return

    def accuracy(self) -> float | None:
        """Of the findings of test records that are known, the share told right; None without labels to train on."""
        right = [each.right() for each in self.each]
        known = [found for found in right if found is not None]
        return float(np.concatenate(known).mean()) if known else None

    def agreement(self) -> float | None:
        """The share of the weight of its own labels on what it predicts; None without labels."""
        found = [agreed for each in self.each if (agreed := each.agreement()) is not None]
        return float(np.mean(found)) if found else None


@dataclass(frozen=True)
class CeilingOfFindings:
    """The ceiling of each finding."""

    each: tuple[Ceiling, ...]

    def accuracy(self) -> float:
        """Of the findings of test records that are known, the share told right."""
        weights = [len(each.pixels.test_labels) for each in self.each]
        return float(np.average([each.accuracy() for each in self.each], weights=weights))


_Said = Float64[ndarray, "pool findings"]  # of labels: probabilities, NaN where they say nothing
ReleasedStudents = ReleasedStudent | StudentsOfFindings
Ceilings = Ceiling | CeilingOfFindings


@dataclass(frozen=True)
class FindingFigures:
    """How well one finding is told, in means over seeds.

    present: of test records that know it, the share that has it; label_auroc: of the pool's labels against its
    true ones; auroc: of the student on the test records; threshold: of the student's probability; sensitivity,
    specificity: at the threshold; brier, calibration_error: of its probabilities. None where a part has one class only.
    """

    name: str
    present: float
    label_auroc: float | None
    auroc: float | None
    threshold: float
    sensitivity: float | None
    specificity: float | None
    brier: float
    calibration_error: float


@dataclass(frozen=True)
class FindingsFound:
    """Of every finding its figures; macro: their mean AUROC, and the half of its interval over seeds; micro: the AUROC
    of all findings of all records together; pooled: private, the AUROC of each finding's ceiling; None without one."""

    findings: tuple[FindingFigures, ...]
    macro: tuple[float, float | None]
    micro: tuple[float, float | None]
    label_macro: tuple[float, float | None]
    pooled: tuple[float | None, ...] | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """For summary.json; what is private is among the baselines."""
        means = {name: getattr(self, name) for name in ("macro", "micro", "label_macro")}
        return {
            "each": [asdict(each) for each in self.findings],
            **{f"{name}_auroc": value for name, (value, _) in means.items()},
            **{f"{name}_auroc_ci95": half for name, (_, half) in means.items()},
        }

    @property
    def pooled_macro(self) -> float | None:
        """Private: the mean AUROC of the ceilings."""
        known = [each for each in self.pooled or () if each is not None]
        return float(np.mean(known)) if known else None


def students_of(released: ReleasedStudents) -> tuple[ReleasedStudent, ...]:
    """The student of each finding, or of the one label."""
    return released.each if isinstance(released, StudentsOfFindings) else (released,)


def auroc_on_tests(released: ReleasedStudents, dataset: Dataset) -> float | None:
    """The mean AUROC of what `auroc_of` names, on the test records, before calibration; None without labels to train
    on."""
    found = []
    for student, task in zip(students_of(released), dataset.tasks, strict=True):
        if student.trained_on:
            chances = student.said(task.test_inputs).astype(np.float64)
            for each in scored(task.classes):
                found.append(auroc(chances[:, each], (task.test_labels == each).astype(np.int64)))
    return _mean(found)


def auroc_of(dataset: Dataset) -> str:
    """What an AUROC is of: the second of two classes, or the mean over several classes or findings."""
    if dataset.findings:
        return f"mean over {len(dataset.findings)} findings"
    if dataset.classes == len(STATES):
        return f"{dataset.class_names[1]} against {dataset.class_names[0]}"
    return f"mean over {dataset.classes} classes, each against the others"


def findings_found(
    dataset: Dataset, said: Sequence[_Said], students: Sequence[StudentsOfFindings], pooled: Ceilings | None
) -> FindingsFound | None:
    """What the students of the seeds, in the order of what labels say, tell of each finding; None where there are no
    students. pooled: the ceiling, if it was measured."""
    if not students:
        return None
    told = [_Seed.of(dataset, labels, student) for labels, student in zip(said, students, strict=True)]
    found = []
    for at, (name, task) in enumerate(zip(dataset.findings, dataset.tasks, strict=True)):
        values = [seed.figures(at, task) for seed in told]
        mean = {key: _mean([each[key] for each in values]) for key in values[0]}
        found.append(FindingFigures(name, float(task.test_labels.mean()), **mean))  # type: ignore[arg-type]  # by name
    of_tasks = None
    if isinstance(pooled, CeilingOfFindings):
        of_tasks = tuple(
            auroc(each.test_probabilities[:, PRESENT].astype(np.float64), each.pixels.test_labels)
            for each in pooled.each
        )
    return FindingsFound(
        tuple(found),
        macro=_over([seed.macro for seed in told]),
        micro=_over([seed.micro for seed in told]),
        label_macro=_over([seed.label_macro for seed in told]),
        pooled=of_tasks,
    )


@dataclass(frozen=True)
class _Seed:
    """What one seed's students say: probabilities that a finding is present, of tests and pool."""

    tests: tuple[Float32[ndarray, " test"], ...]
    thresholds: tuple[float, ...]
    labels: tuple[float | None, ...]
    aurocs: tuple[float | None, ...]
    micro: float

    @classmethod
    def of(cls, dataset: Dataset, said: _Said, students: StudentsOfFindings) -> _Seed:
        tests, thresholds, labels, aurocs = [], [], [], []
        for at, (student, task) in enumerate(zip(students.each, dataset.tasks, strict=True)):
            tests.append(student.probabilities(task.test_inputs)[:, PRESENT])
            thresholds.append(float(student.probabilities(task.public_inputs)[:, PRESENT].mean()))
            labels.append(auroc(said[:, at], np.where(np.isnan(said[:, at]), NOT_KNOWN, task.public_labels)))
            aurocs.append(auroc(tests[-1].astype(np.float64), task.test_labels))
        every = np.concatenate([task.test_labels for task in dataset.tasks])
        micro = auroc(np.concatenate(tests).astype(np.float64), every)
        return cls(tuple(tests), tuple(thresholds), tuple(labels), tuple(aurocs), float(micro or np.nan))

    @property
    def macro(self) -> float:
        return _mean(self.aurocs) or np.nan

    @property
    def label_macro(self) -> float:
        return _mean(self.labels) or np.nan

    def figures(self, at: int, task: Dataset) -> dict[str, float | None]:
        chances, present = self.tests[at].astype(np.float64), task.test_labels == PRESENT
        named, both = chances >= self.thresholds[at], np.stack([1 - chances, chances], axis=1).astype(np.float32)
        return {
            "label_auroc": self.labels[at],
            "auroc": self.aurocs[at],
            "threshold": self.thresholds[at],
            "sensitivity": float(named[present].mean()) if present.any() else None,
            "specificity": float((~named)[~present].mean()) if (~present).any() else None,
            "brier": float(((chances - present) ** 2).mean()),
            "calibration_error": calibration(both, task.test_labels).error,
        }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return float(np.mean(known)) if known else None


def _over(values: Sequence[float]) -> tuple[float, float | None]:
    return mean_and_interval(np.array(values, dtype=np.float64))
