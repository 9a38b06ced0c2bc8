"""Students of a study's released labels: between the rounds of an interactive study, and at the end.

Training is post-processing of what was released: it costs no budget and may be repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.labelling.soft_labels import AskedAgain, SoftLabels, asked_again, pool_labels, soft_labels_of_study
from coordinator.store.store import LabelledStudy
from coordinator.students import SCORES, student_kind
from coordinator.students.certainty import calibrated
from coordinator.students.choice import AUTO, Trained, choose_student, chosen_together
from coordinator.students.findings import FindingsStudent, thresholds_of
from coordinator.students.scores import ScoresStudent
from coordinator.students.student import Released, Student, between_rounds, one_hot
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.features.feature_map import FeatureMap, read_features
from protocols.labelling.coordinator import TrainStudent, stored_again
from protocols.ledger.ledger import Ledger
from protocols.reading import read_bytes, read_json
from protocols.release.manifest import STUDENT_FEATURES_FILE
from protocols.release.sums import LabelsOfPool
from protocols.study.deployed import DeployedStudy
from protocols.study.queries_file import read_blocks
from protocols.study.right_labels import share_of_noise
from protocols.study.votes import TeacherVotes, UnitSums, Votes, unit_sums
from protocols.sums.blocks import Blocks
from protocols.sums.residuals import FirstScores
from runtime.files import write_atomically

BETWEEN_ROUNDS_SEED = 0
_MODEL_BYTES = 2**31
_FIGURES = ("labels", "reinforced", "unlabelled", "agreement")


def train_student(
    labelled: LabelledStudy,
    pool: Float32[ndarray, "queries ..."],
    *,
    kind: str,
    seed: int,
    device: str,
    features: FeatureMap | None = None,
) -> Trained:
    """A student trained on all labels of a labelling, and on its reinforced labels, if any, where the parties gave
    none; where records vote, on the soft labels of the whole pool. kind "auto": the one that choose_student names;
    "scores": those of the released sums. features: what it sees of a record, None for the record itself.

    Raises InvalidInput for an unknown kind, too few labels to choose one, one that does not fit the inputs, features of
    other records, and a labelling without labels.
    """
    how = _How(kind, seed, device)
    if kind == SCORES:
        return _scores(labelled, np.asarray(pool), features, how)
    seen = pool if features is None else features(np.asarray(pool))
    return replace(_TRAIN[type(labelled.study.votes)](labelled, pool, seen, how), features=features)


@dataclass(frozen=True)
class _How:
    kind: str
    seed: int
    device: str


_Pool = Float32[ndarray, "queries ..."]


def _hard_student(labelled: LabelledStudy, pool: _Pool, seen: _Pool, how: _How) -> Trained:
    study = labelled.study
    labels = np.where(labelled.labels >= 0, labelled.labels, labelled.reinforced)
    told = study.votes.asks.folded(labels)
    if told is not None:
        tasks = [_labelled(seen, of, classes=study.labelled.states) for of in told.T]
        return _several(study.findings, tasks, seen, how)
    task, noise = _labelled(seen, labels, classes=study.classes), share_of_noise(study, labelled.labels)
    trained = _train(*task, how, noise=noise)
    given = int((labelled.labels >= 0).sum())
    return replace(trained, labels=given, reinforced=trained.labels - given)


_Task = tuple[ndarray, Float32[ndarray, "answered classes"], ndarray]


def _labelled(seen: Float32[ndarray, "queries ..."], labels: Int64[ndarray, " queries"], *, classes: int) -> _Task:
    """Inputs and targets of those with a label, and the other inputs."""
    has, rest = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    return seen[has], one_hot(labels[has], classes), seen[rest]


def _several(names: tuple[str, ...], tasks: Sequence[_Task], seen: _Pool, how: _How) -> Trained:
    """A student of several findings: one of each, of one kind. Raises InvalidInput for a finding without a label."""
    if empty := [name for name, (inputs, *_) in zip(names, tasks, strict=True) if not len(inputs)]:
        raise InvalidInput(f"no label of the finding {empty[0]!r} was released; allowed: one of each at least")
    choice = None
    if how.kind == AUTO:
        choice = chosen_together([
            choose_student(np.asarray(inputs), targets, unlabelled=np.asarray(rest), seed=how.seed, device=how.device)
            for inputs, targets, rest in tasks
        ])  # fmt: skip
        how = replace(how, kind=choice.kind)
    each = [_train(*task, how) for task in tasks]
    labels = [one.labels for one in each]
    return Trained(
        FindingsStudent.of(names, [one.student for one in each], np.asarray(seen)),
        how.kind, how.seed, how.device, sum(labels), 0, sum(one.unlabelled for one in each),
        float(np.average([one.agreement for one in each], weights=labels)), choice,
    )  # fmt: skip


def _train(
    inputs: Float32[ndarray, "answered ..."],
    targets: Float32[ndarray, "answered classes"],
    unlabelled: Float32[ndarray, "rest ..."],
    how: _How,
    *,
    noise: float = 0.0,
    last: bool = True,
) -> Trained:
    """noise: the least share of the labels that is wrong; last: whether it is the study's student, whose probabilities
    are calibrated, not one between its rounds."""
    inputs, unlabelled = np.asarray(inputs), np.asarray(unlabelled)
    kind, seed, device, choice = how.kind, how.seed, how.device, None
    if kind == AUTO:
        choice = choose_student(inputs, targets, unlabelled=unlabelled, seed=seed, device=device)
        kind = choice.kind
    made = student_kind(kind, device=device)
    student = made.fit(inputs, targets, unlabelled=unlabelled, classes=targets.shape[1], seed=seed)
    if last:
        told = Released(inputs, targets, unlabelled, targets.shape[1], seed)
        student = calibrated(made, student, told, noise=noise)
    agreement = float((student.predict(inputs) == targets.argmax(axis=1)).mean())
    return Trained(student, kind, seed, device, len(inputs), 0, len(unlabelled), agreement, choice)


def released_pool_labels(labelled: LabelledStudy, pool: Float32[ndarray, "queries ..."]) -> LabelsOfPool | None:
    """The soft labels of the pool that the released sums give; None where nothing was released.

    Raises DataUnavailable, and InvalidInput unless the stored queries are the study's.
    """
    made = released_soft_labels(labelled, np.asarray(pool))
    return None if made is None else pool_labels(made[0], np.asarray(pool), made[1])


def released_soft_labels(
    labelled: LabelledStudy, pool: Float32[ndarray, "queries ..."]
) -> tuple[Blocks, SoftLabels] | None:
    """The queries, and what the released sums say of the pool. Raises as released_pool_labels."""
    if labelled.cells is None:
        return None
    queries = read_blocks(labelled.queries, labelled.study)
    with Ledger(labelled.ledger) as ledger:
        charged, again = ledger.settled(0), second_sum(labelled, ledger)
    return queries, soft_labels_of_study(labelled.study, labelled.cells, queries, pool, charged=charged, again=again)


def second_sum(labelled: LabelledStudy, ledger: Ledger) -> AskedAgain | None:
    """What came of a second batch of residuals; None without one. Raises as FirstScores.from_bytes."""
    found = stored_again(labelled.study, ledger) if labelled.study.votes.residuals else None
    if found is None:
        return None
    rows, classes = unit_sums(labelled.study).queries, labelled.study.classes
    first = FirstScores.from_bytes(read_bytes(labelled.asked_about, most=_MODEL_BYTES), rows=rows, classes=classes)
    return asked_again(first, found)


def _scores(labelled: LabelledStudy, pool: _Pool, features: FeatureMap | None, how: _How) -> Trained:
    """The scores of the released sums, which see the study's own features."""
    unit_sums(labelled.study)
    made = released_soft_labels(labelled, pool)
    if made is None:
        raise InvalidInput(_NO_SUMS)
    queries, soft = made
    student = scores_student(queries, soft, labelled.study.findings, pool)
    if features is not None and features.digest != queries.features.digest:
        raise InvalidInput(f"features are given for student {SCORES!r}; allowed: none, it has those of the votes")
    chances = soft.probabilities
    several = bool(labelled.study.findings)
    told = chances >= thresholds_of(chances) if several else chances.argmax(axis=1)
    agreement = float((student.predict(queries.features(pool)) == told).mean())
    return Trained(student, SCORES, how.seed, how.device, told.size, 0, 0, agreement, features=queries.features)


def scores_student(
    queries: Blocks, soft: SoftLabels, findings: tuple[str, ...], pool: Float32[ndarray, "pool ..."]
) -> Student:
    """The scores that sums give as a student. Raises InvalidInput where they have none: votes in cells alone."""
    each = [ScoresStudent.of(queries, one.scores) for one in soft.each]
    return FindingsStudent.of(findings, each, queries.features(np.asarray(pool))) if findings else each[0]


_NO_SUMS = "no sums were released; allowed: a labelling that released some"


def _soft_student(labelled: LabelledStudy, pool: _Pool, seen: _Pool, how: _How) -> Trained:
    soft = released_pool_labels(labelled, pool)
    if soft is None:
        raise InvalidInput(_NO_SUMS)
    targets = soft.probabilities.astype(np.float32)
    if findings := labelled.study.findings:
        tasks = [(seen, np.stack([1 - present, present], axis=1), seen[:0]) for present in targets.T]
        return _several(findings, tasks, seen, how)
    return _train(seen, targets, seen[:0], how)


def keep_student(folder: Path, labelled: LabelledStudy, trained: Trained) -> Path:
    """Records how a student was trained, for kept_student; returns the file. Raises StorageFailed."""
    values = {key: getattr(trained, key) for key in ("kind", "seed", "device", *_FIGURES)}
    sees = "" if trained.features is None else trained.features.digest
    if trained.features is not None:
        write_atomically(folder / STUDENT_FEATURES_FILE, trained.features.to_bytes())
    file = folder / "student.json"
    said = {**values, "features_sha256": sees, "labels_sha256": _digest(labelled)}
    write_atomically(file, json.dumps(said, indent=2) + "\n")
    return file


def kept_student(folder: Path, labelled: LabelledStudy, pool: Float32[ndarray, "queries ..."]) -> Trained:
    """The student of `train`, trained again from the same labels and seed.

    Raises DataUnavailable if none was trained, DataCorrupt for an unreadable file, InvalidInput if the labels differ.
    """
    file = folder / "student.json"
    if not os.access(file, os.F_OK):
        name = labelled.study.name
        raise DataUnavailable(f"study {name!r} has no student; run conclave-coordinator train {name} --student KIND")
    try:
        values = read_json(file)
        kind, seed, device = str(values["kind"]), int(values["seed"]), str(values["device"])
        sees, digest = str(values["features_sha256"]), str(values["labels_sha256"])
    except (DataCorrupt, ValueError, KeyError, TypeError) as error:
        raise DataCorrupt(f"{file} does not say how a student was trained: {error}; run train again") from None
    if digest != _digest(labelled):
        raise InvalidInput(f"{file} refers to other labels than those released now; run train again")
    features = read_features(folder / STUDENT_FEATURES_FILE, sees) if sees else None
    return train_student(labelled, pool, kind=kind, seed=seed, device=device, features=features)


def first_student(study: DeployedStudy, pool: Float32[ndarray, "queries ..."], *, kind: str) -> TrainStudent:
    """`between_rounds`, of students of this kind."""

    def probabilities(
        has: Int64[ndarray, " answered"], targets: Float32[ndarray, "answered classes"]
    ) -> Float32[ndarray, "queries classes"]:
        rest = np.setdiff1d(np.arange(len(pool)), has)
        trained = _train(pool[has], targets, pool[rest], _How(kind, BETWEEN_ROUNDS_SEED, "cpu"), last=False)
        return trained.student.predict_proba(np.asarray(pool))

    return between_rounds(probabilities, classes=study.classes)


def _digest(labelled: LabelledStudy) -> str:
    values = labelled.labels.astype("<i8").tobytes() + labelled.reinforced.astype("<i8").tobytes()
    values += b"" if labelled.cells is None else labelled.cells.astype("<i8").tobytes()
    return hashlib.sha256(labelled.study.digest + values).hexdigest()


# What a student of each kind of votes learns.
_TRAIN: dict[type[Votes], Callable[..., Trained]] = {TeacherVotes: _hard_student, UnitSums: _soft_student}
