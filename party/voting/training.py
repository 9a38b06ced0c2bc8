"""Training a node's teachers for a study on this hospital's records: one folder per seat, see trained.py.

And what a model of its own reaches alone: cross-validated, or on records that were kept back. Nothing leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from party.budget.known_units import check_known, check_told_apart
from party.budget.policy import Policy
from party.budget.spending import check_not_withdrawn
from party.data import load_records
from party.data.mapping import places
from party.data.queries import read_pool_queries
from party.data.records import Records, deal_records, key_of
from party.home import PartyHome
from party.settings import PartySettings, TeacherSettings
from party.teachers.own import kind_of
from party.teachers.teacher import PRIVATE, SilentTeacher, Teacher, TeacherKind, on_features
from party.voting.contribution import rows_of_seats
from party.voting.trained import Manifest, read_teachers_manifest, write_teachers
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.features.feature_map import FeatureMap, read_features
from protocols.levels.hidden_queries.dealing import check_architecture, precision_of
from protocols.levels.hidden_queries.inference.model import Model, plain_inference, quantise
from protocols.plural import counted
from protocols.study.deployed import DeployedStudy
from protocols.study.findings import NOT_KNOWN

# Records on which each teacher is scored, at most.
_SCORED: Final = 1000


@dataclass(frozen=True)
class Deal:
    """How one seat's records are assigned to its teachers. rows: positions of its records; teacher: of each of them."""

    seat: str
    rows: np.ndarray = field(repr=False)
    teacher: np.ndarray = field(repr=False)

    def sizes(self, teachers: int) -> list[int]:
        """The number of records of each teacher."""
        return [int(count) for count in np.bincount(self.teacher, minlength=teachers)]


def deals_of(records: Records, study: DeployedStudy, party: str, seed: int) -> list[Deal]:
    """The assignment for each of a party's seats: of all its records, and then without those that are not used.

    So one record, or patient, changes one teacher, whether it can be used or not. Raises InvalidInput, also for a
    patient in two groups, or unknown groups.
    """
    result = []
    for seat, rows in rows_of_seats(records, study, party):
        held, at = np.unique(records.places[rows], return_inverse=True)
        units = np.searchsorted(held, records.units[rows])  # a unit stands where its first record does: in this seat
        key = key_of(seed, "deal", study.digest.hex(), seat)
        teacher, used = deal_records(at, units, teachers=study.votes.voters, key=key), records.usable[rows]
        dealt = Deal(seat, rows[used], teacher[used])
        if 0 in dealt.sizes(study.votes.voters):
            raise InvalidInput(
                f"seat {seat}: {int((~used).sum())} of {len(rows)} records are left out, or names are joined, and a "
                f"teacher has no record; allowed: at least one for each of {study.votes.voters} teachers"
            )
        result.append(dealt)
    return result


def train(
    home: PartyHome,
    settings: PartySettings,
    study: DeployedStudy,
    party: str,
    *,
    policy: Policy,
    say: Callable[[str], None],
) -> list[tuple[str, list[int]]]:
    """Trains all missing teachers of a party's seats; returns the number of records per teacher, for each seat.

    Raises InvalidInput, DataUnavailable, DataCorrupt, StorageFailed; Refused("known_records") for records that another
    cap counts, ("spoke_elsewhere") for a patient whose records trained teachers of another seat of the study,
    ("withdrawn") for a study that was withdrawn meanwhile. Each folder is then complete, as it was or absent.
    """
    terms = study.terms
    check_private(study, settings)
    kind, features = kind_in(study, settings.teachers, pool=home.pool(study.digest))
    say(f"reading {settings.data.shown}")
    records = load_records(settings.data, terms)
    done, deals = [], deals_of(records, study, party, settings.teachers.seed)
    _remember(policy, settings, study, records, deals)
    own = settings.teachers.kind != "onnx"  # trained here
    for each in deals:
        sizes = each.sizes(study.votes.voters)
        manifest = Manifest(
            study.digest.hex(),
            each.seat,
            records.digest,
            settings.teachers.kind,
            study.votes.voters * study.labelled.told,
            "" if features is None else features.digest,
            tuple(at for at, rows in enumerate(_learned(records, each, study)) if not len(rows)) * own,
        )
        folder = home.teachers(study.digest, each.seat)
        done.append((each.seat, sizes))
        if _same(folder, manifest) and own:
            say(f"seat {each.seat}: already trained on these records: {counted(study.votes.voters, 'teacher')}")
            continue
        teachers = _teachers(kind, settings.teachers, records, each, study, say)
        _check(teachers, records, study)
        private = None
        if study.confidentiality.asked_by:
            private = _private(teachers[0], records.inputs[each.rows], study, say)
        write_teachers(folder, teachers, manifest, private, features)
        check_not_withdrawn(home, policy, study, data_set=settings.data.name, party=party)
        if study.votes.voters > 1 and own:
            say(f"seat {each.seat}: {_unseen(teachers, records, each, study)}")
        say(f"seat {each.seat}: {counted(study.votes.voters, 'teacher')} in {folder}")
    return done


def _remember(
    policy: Policy, settings: PartySettings, study: DeployedStudy, records: Records, deals: Sequence[Deal]
) -> None:
    """Writes down whose records are learned from, before they are, and in which seat each named patient speaks."""
    units, approval = policy.known.digests(settings.data, records), policy.approval(study.digest, settings.data.name)
    check_told_apart(records.patients is not None, approval is not None and approval.told_apart)
    with policy.log.together():
        check_known(policy.known, settings.data.name, units)
        policy.known.remember(settings.data.name, units, other_people=())
        if records.patients is not None and len(deals) > 1:
            policy.known.check_same_names(study.digest, policy.known.of_names(records.patients))
            for each in deals:
                people = policy.known.of_names([records.patients[row] for row in each.rows.tolist()])
                policy.known.speak(study.digest, each.seat, people)


def kind_in(study: DeployedStudy, settings: TeacherSettings, *, pool: Path) -> tuple[TeacherKind, FeatureMap | None]:
    """The kind of teacher of the settings, which has the study's pool if it uses one, and what it learns from; None:
    the records themselves.

    pool: where the pool is, if the hospital was given it. Raises InvalidInput, also where it was not; DataUnavailable.
    """
    kind, features = _kind(settings, study)
    if not kind.uses_pool:
        return kind, features
    if not pool.exists():
        raise InvalidInput(
            f"teachers.kind is {settings.kind!r}, which learns from the public pool of study {study.name!r}, too; "
            "allowed: approve the study again, with --pool FILE, as the operator sent it"
        )
    return kind.with_pool(np.array(read_pool_queries(pool, study.terms))), features


def _kind(settings: TeacherSettings, study: DeployedStudy) -> tuple[TeacherKind, FeatureMap | None]:
    """The kind of teacher of the settings, and what it learns from; None: the records themselves. Raises InvalidInput,
    DataUnavailable.
    """
    kind = kind_of(settings.kind)
    if settings.features is None:
        return kind, None
    features = read_features(settings.features, settings.features_sha256)
    if features.input_shape != study.terms.input_shape:
        raise InvalidInput(
            f"teachers.features is made of records of shape {features.input_shape}; allowed: "
            f"{study.terms.input_shape}, as in terms.input_shape"
        )
    return on_features(kind, features), features


def _teachers(
    kind: TeacherKind,
    settings: TeacherSettings,
    records: Records,
    each: Deal,
    study: DeployedStudy,
    say: Callable[[str], None],
) -> list[Teacher]:
    if settings.kind == "onnx":
        _check_number_of_files(settings, study)
        return [kind.load(path) for path in settings.files]
    teachers: list[Teacher] = []
    told = study.labelled.told
    for number, rows in enumerate(_learned(records, each, study)):
        seed = int.from_bytes(key_of(settings.seed, "train", study.digest.hex(), each.seat, str(number))[:7], "big")
        labels = records.labels[rows].reshape(len(rows), told)[:, number % told]
        shard, states = (records.inputs[rows], labels), study.labelled.states
        teachers += kind.fit([shard], classes=states, seeds=[seed]) if len(rows) else [SilentTeacher()]
        who = f"teacher {number // told + 1} of {study.votes.voters}"
        of = f" tells {study.findings[number % told]}," if study.findings else ""
        say(f"seat {each.seat}: {who}{of} trained on {counted(len(rows), 'record')}")
    return teachers


def _learned(records: Records, each: Deal, study: DeployedStudy) -> list[Int64[ndarray, " rows"]]:
    """The records of which each model learns: those of its teacher, or of these the ones that know its finding."""
    known = records.labels.reshape(len(records.labels), -1) != NOT_KNOWN
    dealt = (each.rows[each.teacher == number] for number in range(study.votes.voters))
    return [rows[known[rows, at]] for rows in dealt for at in range(study.labelled.told)]


def _check(teachers: Sequence[Teacher], records: Records, study: DeployedStudy) -> None:
    """Checks that each teacher answers a few of the records with class ids. Raises InvalidInput."""
    few, classes = records.inputs[: min(3, len(records.inputs))], study.labelled.states
    for number, teacher in enumerate(teachers):
        given = teacher.predict(few)
        silent = isinstance(teacher, SilentTeacher)
        if given.shape != (len(few),) or (not silent and given.min() < 0) or given.max() >= classes:
            raise InvalidInput(f"teacher {number} returns values that are not class ids; allowed: 0 to {classes - 1}")


def _unseen(teachers: Sequence[Teacher], records: Records, each: Deal, study: DeployedStudy) -> str:
    """How often the teachers are right on a seat's records that they did not learn from, in words."""
    right, told = [], study.labelled.told
    for number in range(study.votes.voters):
        rows = each.rows[each.teacher != number][:_SCORED]
        models = teachers[number * told : (number + 1) * told]
        given = np.stack([model.predict(records.inputs[rows]) for model in models], axis=1)
        truth = records.labels[rows].reshape(given.shape)
        known = (truth != NOT_KNOWN) & (given >= 0)
        right.append(float((given == truth)[known].mean()) if known.any() else 0.0)
    labels = records.labels[each.rows]
    counts = np.bincount(labels[labels != NOT_KNOWN], minlength=study.labelled.states)
    of = "of the findings that are known " * bool(study.findings)
    return (
        f"on records that it did not learn from, a teacher is right in {100 * np.mean(right):.1f} % {of}(from "
        f"{100 * min(right):.1f} to {100 * max(right):.1f}); always {study.terms.class_names[int(counts.argmax())]!r} "
        f"would be in {100 * counts.max() / counts.sum():.1f} %"
    )


def check_private(study: DeployedStudy, settings: PartySettings) -> None:
    """Raises InvalidInput if a study hides its queries and this kind of teacher cannot answer hidden ones."""
    if not study.confidentiality.asked_by:
        return
    if settings.teachers.kind not in PRIVATE:
        raise InvalidInput(
            f"teachers.kind is {settings.teachers.kind!r}; allowed: {', '.join(PRIVATE)}, as study {study.name!r} "
            "hides its queries, and other kinds of models cannot be computed on shares"
        )
    if settings.teachers.features is not None:
        raise InvalidInput(
            f"teachers.features is set; allowed: without, as study {study.name!r} hides its queries, and features "
            "cannot be computed on shares"
        )


def check_trainable(settings: PartySettings, study: DeployedStudy, party: str, records: Records) -> list[str]:
    """Raises InvalidInput or DataUnavailable unless teachers can be trained for a study on these records; returns what
    a person should know before approving it, in lines.

    Each seat needs a record (of another patient) for each teacher, and records of two classes at least, of a finding at
    least: teachers of one class learn nothing.
    """
    check_private(study, settings)
    _kind(settings.teachers, study)
    if settings.teachers.kind == "onnx":
        _check_number_of_files(settings.teachers, study)
    names, warnings = study.terms.class_names, []
    classes = study.labelled.states
    for each in deals_of(records, study, party, settings.teachers.seed):
        labels = records.labels[each.rows].reshape(len(each.rows), -1)
        counts = np.stack([np.bincount(told[told != NOT_KNOWN], minlength=classes) for told in labels.T])
        if (counts > 0).sum(axis=1).max() < 2:
            raise InvalidInput(
                f"{settings.data.shown}: all {len(each.rows)} records of seat {each.seat!r} are of class "
                f"{names[int(counts.sum(axis=0).argmax())]!r}; allowed: records of at least 2 of the {classes} "
                "classes, as teachers of one class learn nothing"
            )
        for at, missing in np.argwhere(counts == 0).tolist():
            of = f"of finding {study.findings[at]!r} " if study.findings else ""
            warnings.append(
                f"seat {each.seat}: {of}no record is of class {names[missing]!r}, so nothing will vote for it"
            )
        fewest = min(each.sizes(study.votes.voters))
        if fewest < classes:
            warnings.append(
                f"seat {each.seat}: a teacher learns from {counted(fewest, 'record')}, fewer than the {classes} classes"
            )
    return warnings


def _check_number_of_files(settings: TeacherSettings, study: DeployedStudy) -> None:
    if len(settings.files) != (wanted := study.votes.voters * study.labelled.told):
        raise InvalidInput(
            f"teachers.files names {len(settings.files)} files; allowed: {wanted}, one per teacher"
            + " and finding" * bool(study.findings)
        )


def _private(teacher: Teacher, inputs: np.ndarray, study: DeployedStudy, say: Callable[[str], None]) -> Model:
    """The teacher as a private model that answers hidden queries. Raises InvalidInput if it does not fit the study."""
    model = teacher.private_model(classes=study.classes)
    precision = precision_of(study)
    quantised = quantise(model, precision)
    check_architecture(quantised.architecture, study)
    rows = inputs.reshape(len(inputs), -1)
    within = (np.abs(rows) <= precision.input_bound).all(axis=1)
    if within.any():
        same = plain_inference(quantised, inputs[within]) == teacher.predict(inputs[within])
        say(
            f"in fixed point the model agrees with the teacher on {100 * same.mean():.1f} % of {within.sum()} records "
            f"(not how often it is right: conclave-party data score); {len(rows) - within.sum()} others have values "
            f"beyond the study's {precision.input_bound:g}"
        )
    return model


def _same(folder: Path, manifest: Manifest) -> bool:
    try:
        return read_teachers_manifest(folder) == manifest
    except (DataUnavailable, DataCorrupt):
        return False


SUITABILITY_FOLDS: Final = 5


def predicted_unseen(records: Records, kind: TeacherKind, *, seed: int, classes: int) -> Int64[ndarray, " used"]:
    """The class that a model predicts for each used record, trained on the other parts of a division in FOLDS parts.

    kind: of the model; seed: from which parts and training derive.
    All records of a patient are in one part; with fewer patients than FOLDS there are as many parts as patients.
    Raises InvalidInput for a kind that is not trained here, and for fewer than two patients.
    """
    used = records.usable
    units = records.units[used]
    inputs, labels = records.inputs[used], records.labels[used]
    held = len(np.unique(units))
    if held < 2:
        raise InvalidInput(f"{held} patient; allowed: two or more, to score a model on those that it did not see")
    order = places(units.tolist(), len(units))
    parts = deal_records(order, order, teachers=min(SUITABILITY_FOLDS, held), key=key_of(seed, "folds"))
    predicted = np.empty(len(labels), np.int64)
    for part in range(int(parts.max()) + 1):
        seen, own = parts != part, int.from_bytes(key_of(seed, "score", str(part))[:7], "big")
        (model,) = kind.fit([(inputs[seen], labels[seen])], classes=classes, seeds=[own])
        predicted[~seen] = model.predict(inputs[~seen])
    return predicted


def predicted_kept_back(
    records: Records, kept: Records, kind: TeacherKind, *, seed: int, classes: int
) -> Int64[ndarray, " used"]:
    """The class that a model of all used records predicts for each used record that was kept back.

    Raises InvalidInput for a kind that is not trained here.
    """
    used, own = records.usable, int.from_bytes(key_of(seed, "score", "all")[:7], "big")
    (model,) = kind.fit([(records.inputs[used], records.labels[used])], classes=classes, seeds=[own])
    return model.predict(kept.inputs[kept.usable])
