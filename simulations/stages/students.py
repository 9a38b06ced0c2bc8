"""The student stage: train on released labels, measure on the test part; cached by the hash of its inputs.

And what parties would have alone: a model of its own records for each, on the test records. Not for release.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from coordinator.students import EQUAL, SCORES, STUDENTS, student_kind
from coordinator.students.certainty import calibrated
from coordinator.students.choice import (
    AUTO,
    FOLDS,
    SIMPLEST,
    USUAL,
    Choice,
    KindScore,
    ToLearn,
    choose_student,
    folds,
    usual_student,
)
from coordinator.students.scores import ScoresStudent
from coordinator.students.student import Released, Student, between_rounds, one_hot
from party.teachers import TEACHERS, teacher_kind
from protocols.array_files import array_bytes
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.labelling.coordinator import TrainStudent
from protocols.reading import read_json
from protocols.study.votes import TeacherVotes
from runtime.files import write_atomically
from simulations.datasets.dataset import Dataset, content_digest
from simulations.source import source_digest
from simulations.stages.cached import cached_array
from simulations.stages.cast import teacher_path, teacher_seed

# With more parties, so many of them are measured, evenly spread over the roster.
MOST_MEASURED = 50


def measured_parties(parties: int) -> Int64[ndarray, " measured"]:
    """The positions of the parties that are measured: all, or MOST_MEASURED evenly spread over the roster."""
    return np.unique(np.linspace(0, parties - 1, min(parties, MOST_MEASURED)).astype(np.int64))


def alone_right(
    dataset: Dataset,
    shards: Sequence[Sequence[Int64[ndarray, " records"]]],
    *,
    teacher: str,
    seed: int,
    cache_dir: Path,
    trained: Path | None,
) -> Bool[ndarray, "measured test"]:
    """On which test records a teacher of all of a party's records is right, of at most MOST_MEASURED parties.

    The i-th row is the party i's where all are measured. Cached by what it depends on. trained: the folder
    of the teachers that voted, of these shards and this seed: a party's only teacher is the model that it has alone,
    and is not trained again. None where records voted.
    """
    chosen = measured_parties(len(shards)).tolist()
    holdings = [np.concatenate(shards[party]) for party in chosen]
    source = source_digest(TEACHERS.module_of(teacher), "party.teachers", "runtime.torch_networks", __name__)
    kind = teacher_kind(teacher).with_pool(dataset.public_inputs)
    pool = dataset.public_digest if kind.uses_pool else ""
    about = f"alone {dataset.private_digest} {pool} {dataset.test_digest} {teacher} {seed} {chosen} {source}"
    path = cache_dir / "alone" / f"{content_digest(*holdings, text=about)}.npy"
    known = cached_array(path)
    if known is not None and known.shape == (len(chosen), len(dataset.test_labels)) and known.dtype == np.bool_:
        return known
    if trained is not None and all(len(of_party) == 1 for of_party in shards):
        models = [kind.load(teacher_path(trained, str(party), 0)) for party in chosen]
    else:
        models = kind.fit(
            [(dataset.private_inputs[records], dataset.private_labels[records]) for records in holdings],
            classes=dataset.classes,
            seeds=[teacher_seed(seed, party, 0) for party in chosen],
        )
    found = np.array([model.predict(dataset.test_inputs) == dataset.test_labels for model in models])
    write_atomically(path, array_bytes(found))
    return found


class ReleasedStudent:
    """A student of the labels of some public queries. It is trained only when an uncached result is needed.

    positions: the public queries that have a label; targets: the weight of each class for each of them (one_hot where
    labels are hard). Semi-supervised students also see the inputs of the rest of the public pool, never its labels.
    student: a kind; "usual", for the one that suits so many labels; or "auto", for the one that cross-validation on
    these labels names; or "scores", for those of sums, which are not trained. noise: the least share of the labels
    that is wrong. linear: what linear students see of an input; None: the input. between: whether it is one between the
    rounds of a study, which is not calibrated.
    """

    def __init__(
        self,
        dataset: Dataset,
        positions: Int64[ndarray, " answered"],
        targets: Float32[ndarray, "answered classes"],
        *,
        student: str,
        seed: int,
        cache_dir: Path,
        noise: float = 0.0,
        linear: FeatureMap | None = None,
        scores: ScoresStudent | None = None,
        between: bool = False,
    ) -> None:
        given = ToLearn.of(dataset.public_inputs, labels=len(targets))
        self._usual = usual_student(TeacherVotes, given) if student == USUAL else None
        student = student if self._usual is None else self._usual.kind
        named = "coordinator.students.scores" if student == SCORES else "coordinator.students.choice"
        module = named if student in (AUTO, SCORES) else STUDENTS.module_of(student.removesuffix(EQUAL))
        source = source_digest(
            module, "coordinator.students", "coordinator.queries", "protocols.features", "protocols.sums",
            "runtime.label_spreading", "runtime.torch_networks",
        )  # fmt: skip
        if student == AUTO:  # chooses among what is installed
            source += " ".join(package for package in ("sklearn", "torch") if find_spec(package))
        if scores is not None:
            linear, source = scores.blocks.features, source + content_digest(scores.coefficients)
        features = "" if linear is None else linear.digest
        about = f"released {dataset.public_digest} {student} {seed} {dataset.classes} {features} {between} {source}"
        self.linear, self._scores, self._between = linear, scores, between
        self._key = content_digest(positions, targets, text=f"{about} {noise}")
        self._dataset, self._positions, self._targets = dataset, positions, targets
        self._student, self._seed, self._cache_dir, self._noise = student, seed, cache_dir, noise

    @property
    def trained_on(self) -> int:
        """How many public queries have a label to learn from."""
        return len(self._targets)

    @property
    def kind(self) -> str:
        """The kind of student that is trained."""
        return self._student if self.choice is None else self.choice.kind

    @property
    def taught_kind(self) -> str:
        """The kind of a model that learns labels as this one would: of scores, which learn none, a linear one."""
        return SIMPLEST if self.kind == SCORES else self.kind

    @cached_property
    def choice(self) -> Choice | None:
        """How the kind was chosen; None if it was named. Below FOLDS labels auto is SIMPLEST, without scores."""
        if self._student != AUTO:
            return self._usual
        if len(self._targets) < FOLDS:
            return Choice(SIMPLEST, ())
        path = self._cache_dir / "students" / f"{self._key}-choice.json"
        known = _read_choice(path)
        if known is None:
            inputs, rest = self._parts()
            known = choose_student(
                inputs, self._targets, unlabelled=rest, seed=self._seed, device="auto", linear=self.linear
            )
            write_atomically(path, json.dumps(asdict(known)))
        return known

    def accuracy(self) -> float | None:
        """Test accuracy; None without labels to train on."""
        if len(self._targets) == 0:
            return None
        path = self._cache_dir / "students" / f"{self._key}-{self._dataset.test_digest}.json"
        known = _read_accuracy(path)
        if known is None:
            dataset = self._dataset
            known = float((self._trained.predict(self._seen(dataset.test_inputs)) == dataset.test_labels).mean())
            write_atomically(path, json.dumps({"accuracy": known}))
        return known

    def agreement(self) -> float | None:
        """The share of the weight of its own labels on the classes that it predicts; None without labels."""
        if len(self._targets) == 0:
            return None
        predicted = self.said(self._parts()[0]).argmax(axis=1)
        return float(np.take_along_axis(self._targets, predicted[:, None], axis=1).sum() / self._targets.sum())

    def right(self) -> Bool[ndarray, " test"] | None:
        """Whether the most probable class is right, of each test record; None without labels to train on."""
        if len(self._targets) == 0:
            return None
        right: Bool[ndarray, " test"] = self.said(self._dataset.test_inputs).argmax(axis=1) == self._dataset.test_labels
        return right

    def probabilities(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The probability of each class; uniform without labels to train on."""
        return self._said(inputs, self._key, lambda: self._calibrated)

    def said(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The same before calibration, which trains more students: its order of inputs, and of classes."""
        return self._said(inputs, f"{self._key} as trained", lambda: self._trained)

    def _said(
        self, inputs: Float32[ndarray, "queries ..."], key: str, student: Callable[[], Student]
    ) -> Float32[ndarray, "queries classes"]:
        if len(self._targets) == 0:
            return np.full((len(inputs), self._dataset.classes), 1 / self._dataset.classes, dtype=np.float32)
        path = self._cache_dir / "students" / f"{content_digest(inputs, text=key)}.npy"
        known = cached_array(path)
        if known is not None and known.shape == (len(inputs), self._dataset.classes) and known.dtype == np.float32:
            return known
        made = student().predict_proba(self._seen(inputs))
        write_atomically(path, array_bytes(made))
        return made

    @cached_property
    def _trained(self) -> Student:
        if self._scores is not None:
            return self._scores
        to_learn = self._released
        return student_kind(self.kind).fit(
            to_learn.inputs, to_learn.targets, unlabelled=to_learn.unlabelled, classes=to_learn.classes,
            seed=to_learn.seed,
        )  # fmt: skip

    @cached_property
    def _calibrated(self) -> Student:
        if self._scores is not None or self._between:
            return self._trained
        return calibrated(student_kind(self.kind), self._trained, self._released, noise=self._noise)

    @cached_property
    def _released(self) -> Released:
        """What it learns, and its calibration after it."""
        inputs, rest = map(self._seen, self._parts())
        return Released(inputs, self._targets, rest, self._dataset.classes, self._seed)

    def _seen(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries ..."]:
        """The inputs as this kind sees them."""
        return inputs if self.linear is None or self.taught_kind != SIMPLEST else self.linear(inputs)

    def _parts(self) -> tuple[Float32[ndarray, "answered ..."], Float32[ndarray, "rest ..."]]:
        """The public inputs that have a label, and the others."""
        pool = self._dataset.public_inputs
        return pool[self._positions], pool[np.setdiff1d(np.arange(len(pool)), self._positions)]


def first_seeds_student(
    dataset: Dataset, *, student: str, seed: int, cache_dir: Path, linear: FeatureMap | None
) -> TrainStudent:
    """`between_rounds`, of students of this kind."""

    def probabilities(
        answered: Int64[ndarray, " answered"], targets: Float32[ndarray, "answered classes"]
    ) -> Float32[ndarray, "queries classes"]:
        first = ReleasedStudent(
            dataset, answered, targets, student=student, seed=seed, cache_dir=cache_dir, linear=linear, between=True
        )
        return first.probabilities(dataset.public_inputs)

    return between_rounds(probabilities, classes=dataset.classes)


def pooled_student(
    dataset: Dataset, *, student: str, seed: int, cache_dir: Path, linear: FeatureMap | None = None
) -> ReleasedStudent:
    """The same kind of model of all pooled private data with their true labels: no privacy."""
    pooled = replace(
        dataset,
        public_inputs=dataset.private_inputs,
        public_labels=dataset.private_labels,
        private_sites=None,
        private_patients=None,
    )
    everything = np.arange(len(dataset.private_labels))
    targets = one_hot(dataset.private_labels, dataset.classes)
    return ReleasedStudent(pooled, everything, targets, student=student, seed=seed, cache_dir=cache_dir, linear=linear)


def foretold(
    rows: Callable[[], Dataset], labels: Int64[ndarray, " queries"], *, named: str, cache_dir: Path
) -> int | None:
    """How many released labels a linear model of the others predicts, each held out in one of FOLDS folds.

    rows: the data set as linear models see it, which `named` tells from others; labels: of the public queries, < 0
    where none was released. None below FOLDS labels, and without scikit-learn. Cached.
    """
    answered = np.flatnonzero(labels >= 0)
    if len(answered) < FOLDS or not find_spec("sklearn"):
        return None
    source = source_digest(STUDENTS.module_of(SIMPLEST), "coordinator.students", __name__)
    path = cache_dir / "students" / f"{content_digest(labels, text=f'foretold {named} {source}')}.npy"
    known = cached_array(path)
    if known is not None and known.shape == () and known.dtype == np.int64:
        return int(known)
    dataset = rows()
    inputs, targets = dataset.public_inputs[answered], one_hot(labels[answered], dataset.classes)
    fold, kind, found = folds(labels[answered], 0), student_kind(SIMPLEST), 0
    for each in range(FOLDS):
        rest, held = fold != each, fold == each
        model = kind.fit(inputs[rest], targets[rest], unlabelled=inputs[:0], classes=dataset.classes, seed=0)
        found += int((model.predict(inputs[held]) == labels[answered][held]).sum())
    write_atomically(path, array_bytes(np.array(found, np.int64)))
    return found


def check_student_kind(name: str | None) -> None:
    """Raises InvalidInput unless `name` is a student, "scores", "usual", "auto", "none", or None for what is usual."""
    if name not in (None, "none", AUTO, SCORES, USUAL):
        try:
            student_kind(str(name))
        except InvalidInput as error:
            raise InvalidInput(f"{error}; or usual, auto to compare kinds, or none to stop after the labels") from None


def _read_choice(path: Path) -> Choice | None:
    """A cached choice; None if there is no readable one, so that kinds are compared again."""
    try:
        known = read_json(path)
        return Choice(str(known["kind"]), tuple(KindScore(**score) for score in known["scores"]))
    except (DataUnavailable, DataCorrupt, KeyError, TypeError):
        return None


def _read_accuracy(path: Path) -> float | None:
    """A cached accuracy; None if there is no readable one, so that it is measured again."""
    try:
        accuracy = float(read_json(path)["accuracy"])
    except (DataUnavailable, DataCorrupt, ValueError, KeyError, TypeError):
        return None
    return accuracy if 0 <= accuracy <= 1 else None
