"""What a study of record votes is held against before anything is private: one hospital alone, all together, teachers.

All on the same stand-in tasks (stand_ins.py), all models logistic regressions, all accuracies expected ones on the
pool. Each figure is a mean over the tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from sklearn.decomposition import PCA

from coordinator.students import student_kind
from coordinator.students.targets import one_hot
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.study.votes import TeacherVotes, UnitSums
from simulations.planning.record_votes import Publics, Rehearsed
from simulations.planning.stand_ins import StandIn
from simulations.setup.experiment import Experiment, experiment, experiment_budgets, make_study

# Hospitals of which a model is trained on each task; where there are more, votes repeat.
_MOST_MODELS = 12
# Records that a pooled model is trained on, at most, and features of one.
_MOST_ROWS, _MOST_FEATURES = 10_000, 100
# Noise that is tried where teachers vote, as shares of the number of hospitals.
_NOISES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
# What a study must gain to be clearly worth its budget, in standard errors of the difference.
_CLEARLY = 2.0


@dataclass(frozen=True)
class RehearsedTeachers:
    """The best study of teachers that was tried: sigma in votes, labels it affords, its student's accuracy."""

    sigma: float
    labels: int
    student: float


@dataclass(frozen=True)
class Comparison:
    """Expected accuracies on the stand-in tasks.

    student: of the labels of record votes; alone: one hospital's own model, in the mean; pooled: of all records without
    privacy; best: the best possible model; guessing: the most frequent class; gain: student - alone, with its
    standard error; teachers: None where no study of teachers can be made.
    """

    student: float
    alone: float
    pooled: float
    best: float
    guessing: float
    gain: float
    gain_error: float
    teachers: RehearsedTeachers | None

    @property
    def worth(self) -> bool:
        """Whether the student is expected to be better than one hospital's own model, and than guessing."""
        return self.gain > 0 and self.student > self.guessing

    @property
    def votes_by(self) -> str:
        """Who should vote: "record" or "teacher", by the better student."""
        return UnitSums.by if self.better is None else TeacherVotes.by

    @property
    def better(self) -> RehearsedTeachers | None:
        """The teachers, where their student is expected to be the better one."""
        return self.teachers if self.teachers is not None and self.teachers.student > self.student else None

    @property
    def verdict(self) -> str:
        """The recommendation in one sentence."""
        margin = f"{self.gain:+.3f} ± {self.gain_error:.3f} beside one hospital's own model"
        if (teachers := self.better) is not None:
            return (
                f"let teachers vote: {teachers.labels} labels at sigma {teachers.sigma:g} are expected to "
                f"give a student of {teachers.student:.3f}, record votes one of {self.student:.3f}"
            )
        if self.student <= self.guessing or self.gain <= -_CLEARLY * self.gain_error:
            return f"not worth its budget: the student is expected at {margin}"
        if self.gain < _CLEARLY * self.gain_error:
            return f"doubtful: the student of record votes is expected at {margin}, which may be chance"
        return f"let records vote: the student is expected at {margin}"


def compare(settings: Experiment, publics: Publics, rehearsed: Rehearsed) -> Comparison:
    """Trains what the recommendation rests on."""
    features = _narrow(rehearsed.features)
    students, alone, pooled, votes = [], [], [], []
    for number, (task, targets) in enumerate(zip(rehearsed.tasks, rehearsed.targets, strict=True)):
        rng = simulation_rng(settings.data_seed, "comparison", number)
        students.append(task.accuracy(_predicted(features, features, targets)))
        own = [_model(features, task, [party]) for party in range(min(len(task.rows), _MOST_MODELS))]
        alone.append(float(np.mean([task.accuracy(predicted) for predicted in own])))
        pooled.append(task.accuracy(_model(features, task, range(len(task.rows)), rng=rng)))
        votes.append(np.stack(own))
    gains = np.array(students) - np.array(alone)
    return Comparison(
        student=float(np.mean(students)),
        alone=float(np.mean(alone)),
        pooled=float(np.mean(pooled)),
        best=float(np.mean([task.best for task in rehearsed.tasks])),
        guessing=float(np.mean([task.guessing for task in rehearsed.tasks])),
        gain=float(gains.mean()),
        gain_error=float(gains.std(ddof=1) / np.sqrt(len(gains))),
        teachers=_teachers(settings, publics, rehearsed, features, votes),
    )


def _narrow(features: Float32[ndarray, "pool features"]) -> Float32[ndarray, "pool features"]:
    """The pool as models see it: where it has many features, by their principal components."""
    if features.shape[1] <= _MOST_FEATURES:
        return features
    parts = PCA(min(_MOST_FEATURES, len(features)), random_state=0).fit_transform(features)
    return (parts / parts[:, 0].std()).astype(np.float32)


def _model(
    features: Float32[ndarray, "pool features"],
    task: StandIn,
    parties: range | list[int],
    *,
    rng: np.random.Generator | None = None,
) -> Int64[ndarray, " pool"]:
    """What a model of these hospitals' stand-in records says of the pool; rng: chooses among too many records."""
    rows = np.concatenate([task.rows[party] for party in parties])
    labels = np.concatenate([task.labels[party] for party in parties])
    if rng is not None and len(rows) > _MOST_ROWS:
        kept = rng.choice(len(rows), size=_MOST_ROWS, replace=False)
        rows, labels = rows[kept], labels[kept]
    return _predicted(features, features[rows], one_hot(labels, task.chances.shape[1]))


def _predicted(
    features: Float32[ndarray, "pool features"],
    inputs: Float32[ndarray, "inputs features"],
    targets: Float32[ndarray, "inputs classes"],
) -> Int64[ndarray, " pool"]:
    seen = np.flatnonzero(targets.any(axis=0))
    if len(seen) < 2:
        return np.full(len(features), seen[0])
    kind = student_kind("logistic_regression")
    fitted = kind.fit(inputs, targets, unlabelled=features[:0], classes=targets.shape[1], seed=0)
    return fitted.predict(features)


def _teachers(
    settings: Experiment,
    publics: Publics,
    rehearsed: Rehearsed,
    features: Float32[ndarray, "pool features"],
    votes: list[Int64[ndarray, "models pool"]],
) -> RehearsedTeachers | None:
    """The best study of one teacher per hospital over the noises tried; None if none affords a label."""
    if settings.unit == "patient":
        return None
    parties, pool, classes = len(publics.sizes), len(features), publics.pool.classes
    found = []
    for share in _NOISES:
        made = _teacher_study(settings, parties, classes, pool, sigma=share * parties)
        if made is None:
            continue
        weights, labels = made
        accuracies = []
        for number, (task, own) in enumerate(zip(rehearsed.tasks, votes, strict=True)):
            rng = simulation_rng(settings.data_seed, "teachers", number)
            asked = rng.choice(pool, size=labels, replace=False)
            cast = own[np.arange(parties) % len(own)][:, asked]
            counts = np.stack([weights @ (cast == each) for each in range(classes)], axis=1)
            released = (counts + share * parties * rng.standard_normal(counts.shape)).argmax(axis=1)
            accuracies.append(task.accuracy(_predicted(features, features[asked], one_hot(released, classes))))
        found.append(RehearsedTeachers(share * parties, labels, float(np.mean(accuracies))))
    return max(found, key=lambda each: each.student, default=None)


def _teacher_study(
    settings: Experiment, parties: int, classes: int, pool: int, *, sigma: float
) -> tuple[Float64[ndarray, " parties"], int] | None:
    """The weights, and the labels that a study of teachers affords with this noise; None if it affords none."""
    summed = settings.confidentiality == "secure_sum"
    given = {name: getattr(settings, name) for name in ("budgets", "delta", "weights", "unit", "quorum", "colluders",
                                                        "units", "confidentiality", "data_seed")}  # fmt: skip
    try:
        asked = experiment(
            **given, parties=parties, mechanism="gnmax", sigma=sigma, view="histogram" if summed else "label"
        )
        study = make_study(asked, experiment_budgets(asked), classes=classes, queries=pool)
        labels = int(study.budgets.affordable(np.zeros(parties, dtype=np.int64), limit=pool).min())
    except InvalidInput:
        # A budget that affords nothing with so little noise.
        return None
    return (study.weights, labels) if labels else None
