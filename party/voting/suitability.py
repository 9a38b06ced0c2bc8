"""Whether a hospital's records can train a study's teachers: classes, patients, what teachers learn; as a page too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final  # the values of a JSON object

import numpy as np

from party.data import load_records
from party.data.mapping import DataMapping
from party.data.quality import Problem, Quality
from party.data.records import RecordLabels, Records
from party.settings import PartySettings
from party.voting.contribution import rows_of_seats, units_in
from party.voting.training import deals_of
from protocols.plural import counted
from protocols.study.deployed import DeployedStudy
from protocols.study.findings import NOT_KNOWN
from protocols.study.terms import Terms
from protocols.study.votes import TeacherVotes, UnitSums, Votes, teacher_votes
from runtime.page import cards, document, facts, lines, table, text, verdict


@dataclass(frozen=True)
class SeatFit:
    """One seat. sizes: records of each teacher, or, where records vote, the units that vote; one_class: teachers whose
    records are all of one class; classes: of how many there are records."""

    seat: str
    sizes: tuple[int, ...]
    one_class: int
    classes: int


@dataclass(frozen=True)
class Alike:
    """Units that may be the same, where the mapping file does not say. names: what a person is asked about patients'
    names, rows: about equal records, with the commands that settle it; "" where there is nothing to ask."""

    names: str = ""
    rows: str = ""


def alike(records: Records, mapping: DataMapping, study: DeployedStudy) -> Alike:
    """What a person must say about names that differ in writing alone, and about equal records that count as several
    units."""
    names = rows = ""
    if records.patients is not None and mapping.names is None:
        written = len(set(records.patients))
        counts = {rule: len(np.unique(records.patients_by(rule))) for rule in ("folded", "number")}
        if counts["number"] < written:
            rule = "folded" if counts["folded"] == counts["number"] else "number"
            names = (
                f"{written} names of patients become {counts[rule]} if {_MATTERS[rule]}. If these are the same people: "
                f"conclave-party data map STUDY --names {rule}; if not: --names exact"
            )
    by_row = records.patients is None or "patient" not in study.votes.bounded(study.unit)
    more = len(records.labels) - len(np.unique(records.equal_rows)) if by_row and mapping.equal_rows is None else 0
    if more:
        rows = (
            f"{counted(more, 'record')} equal to an earlier one. If that is the same one again: conclave-party data "
            "map STUDY --equal-rows one; if not: --equal-rows each"
        )
    return Alike(names, rows)


_MATTERS: Final = {
    "folded": "case, blanks and invisible characters are ignored",
    "number": "007, 7 and 7.0 are the same name",
}


@dataclass(frozen=True)
class Suitability:
    """What the records come to. patients: None if they are not named; identical: records with the same features as
    another; left_out: records that the mapping file leaves out; classes: records by class; findings: of each the
    records with it, without it, and that do not know it; several: patients with several records; unit: what votes, None
    where teachers do."""

    records: int
    left_out: int
    classes: Mapping[str, int]
    patients: int | None
    several: int
    identical: int
    seats: tuple[SeatFit, ...]
    unit: str | None
    alike: Alike = field(default_factory=Alike)
    findings: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def can_train(self) -> bool:
        """Whether there is anything to learn: records of two classes at least, of each seat that has teachers."""
        return self.unit is not None or all(each.classes >= 2 for each in self.seats)

    @property
    def ready(self) -> bool:
        """Whether it can be approved without a question about patients' names."""
        return self.can_train and not self.alike.names

    @property
    def verdict(self) -> str:
        """The first line of the report."""
        if not self.can_train:
            return "NOT READY: the records of a seat are all of one class, so nothing can be learned from them."
        if self.alike.names:
            return "NOT READY: names of patients look alike, and nobody has said whether they are the same people."
        if any(each.one_class for each in self.seats):
            return "READY, with a warning: some teachers will know one class only."
        return "READY: the records can be read by the study's terms."

    def lines(self) -> list[str]:
        """The figures in words."""
        lines = [
            f"{counted(self.records, 'record')}" + f", and {self.left_out} that are left out" * bool(self.left_out)
        ]
        for name, count in self.classes.items():
            share = f"{100 * count / self.records:.0f} %" if count else "none: nothing here will vote for it"
            lines.append(f"class {name}: {count} ({share})")
        for name, (present, absent, unknown) in self.findings.items():
            lines.append(f"finding {name}: {present} present, {absent} absent, {unknown} not known")
        if self.patients is not None:
            lines.append(f"{counted(self.patients, 'patient')}, {self.several} with several records each")
        elif self.identical:
            lines.append(
                f"{counted(self.identical, 'record')} with the same features as another: if a patient may occur "
                "twice, set data.patient"
            )
        lines += [each for each in (self.alike.names, self.alike.rows) if each]
        for each in self.seats:
            if self.unit is not None:
                lines.append(f"seat {each.seat}: {each.sizes[0]} {self.unit}s vote, each once")
                continue
            few, most = min(each.sizes), max(each.sizes)
            lines.append(
                f"seat {each.seat}: {counted(len(each.sizes), 'teacher')} of {few} to {counted(most, 'record')}"
            )
            if each.one_class:
                lines.append(
                    f"{each.one_class} of them have records of one class only, and will vote for it always: the study "
                    "has more teachers than these records can train well"
                )
        return lines

    def figures(self) -> dict[str, Any]:
        """The same for JSON."""
        key = "records_per_teacher" if self.unit is None else "units_per_seat"
        return {
            "records": self.records,
            "left_out": self.left_out,
            "classes": dict(self.classes),
            "findings": {name: list(each) for name, each in self.findings.items()},
            "patients": self.patients,
            "patients_with_several_records": self.several,
            "identical_records": self.identical,
            "asked": [each for each in (self.alike.names, self.alike.rows) if each],
            key: {each.seat: list(each.sizes) for each in self.seats},
            "teachers_of_one_class": {each.seat: each.one_class for each in self.seats},
        }


def suitability(settings: PartySettings, study: DeployedStudy, party: str) -> Suitability:
    """Reads the records and deals them to the study's teachers, or counts who votes.

    Raises InvalidInput, DataUnavailable, DataCorrupt as loading and dealing do.
    """
    records = load_records(settings.data, study.terms)
    used = records.usable
    labels = records.labels[used]
    classes, findings = _by_label(labels, study.terms)
    per_unit = np.bincount(records.units[used])
    seats, unit = _FITS[type(study.votes)](records, settings, study, party)
    return Suitability(
        records=len(labels),
        left_out=int((~used).sum()),
        classes=classes,
        patients=None if records.patients is None else int((per_unit > 0).sum()),
        several=int((per_unit > 1).sum()),
        identical=len(labels) - len({row.tobytes() for row in records.inputs[used]}),
        seats=tuple(seats),
        unit=unit,
        alike=alike(records, settings.data.mapping, study),
        findings=findings,
    )


def _by_label(labels: RecordLabels, terms: Terms) -> tuple[dict[str, int], dict[str, tuple[int, int, int]]]:
    """How many records there are of each class; or of each finding with it, without it, and that do not know it."""
    counts = [np.bincount(told + 1, minlength=1 + len(terms.class_names)).tolist() for told in np.atleast_2d(labels.T)]
    if not terms.findings:
        return dict(zip(terms.class_names, counts[0][1:], strict=True)), {}
    return {}, {name: (each[2], each[1], each[0]) for name, each in zip(terms.findings, counts, strict=True)}


def _states(labels: RecordLabels) -> int:
    """How many classes occur; of several findings, the most states of one that do."""
    return max(len(np.unique(told[told != NOT_KNOWN])) for told in np.atleast_2d(labels.T))


# The seats' fits, and the unit of which each votes; None for teachers.
_Fits = tuple[list[SeatFit], str | None]


def _fits_of_teachers(records: Records, settings: PartySettings, study: DeployedStudy, party: str) -> _Fits:
    teachers, seats = teacher_votes(study).teachers, []
    for each in deals_of(records, study, party, settings.teachers.seed):
        of_teacher = (records.labels[each.rows[each.teacher == number]] for number in range(teachers))
        alone, held = sum(_states(own) <= 1 for own in of_teacher), _states(records.labels[each.rows])
        seats.append(SeatFit(each.seat, tuple(each.sizes(teachers)), alone, held))
    return seats, None


def _fits_of_records(records: Records, settings: PartySettings, study: DeployedStudy, party: str) -> _Fits:
    voting = units_in(records, study)
    rows_of = rows_of_seats(records, study, party)
    used = records.usable
    return [SeatFit(seat, (len(np.unique(voting[rows[used[rows]]])),), 0, 0) for seat, rows in rows_of], study.unit


_FITS: dict[type[Votes], Callable[[Records, PartySettings, DeployedStudy, str], _Fits]] = {
    TeacherVotes: _fits_of_teachers,
    UnitSums: _fits_of_records,
}


def quality_page(place: str, study: str, quality: Quality | None, fit: Suitability | None, *, approve: str) -> str:
    """The page. place: the source, as settings show it; quality: None where the source is no table; fit: None where the
    records cannot be read yet; approve: the command that comes next."""
    ready = fit is not None and fit.can_train
    says = fit.verdict if fit is not None else "NOT READY: the records cannot be read by the study's terms yet."
    points = [("What to do.", approve if ready else f"conclave-party data map {study}")]
    if quality is not None and quality.problems:
        points.insert(0, (f"{len(quality.problems)} to settle.", "Each is below, with the rows that it is in."))
    body = [verdict(says, points, tone="good" if ready else "warn")]
    if fit is not None:
        body += [cards(_figures(fit)), "<section><h2>Records</h2>", lines(fit.lines()), "</section>"]
    if quality is not None:
        if quality.problems:
            rows = [(_named(each), each.found, _rows(each), each.todo) for each in quality.problems]
            head = ("Column", "What is wrong", "Rows", "How to settle it")
            body += ["<section><h2>Problems</h2>", table("Problems", head, rows, words=(1, 3)), "</section>"]
        if quality.proposals:
            proposed = [
                (each.what, each.column, each.own, each.study or "nothing", each.rows) for each in quality.proposals
            ]
            head_of = ("What", "Column", "Yours", "The study's", "Rows")
            body += ["<section><h2>Proposed</h2>", table("Proposals", head_of, proposed, words=(1, 2, 3)), "</section>"]
        if quality.columns:
            found = [(each.column, each.own, each.missing, each.unusable, each.encoded) for each in quality.columns]
            columns = ("Column", "Yours", "Missing", "Unusable", "As numbers")
            caption = f"Columns of {counted(quality.rows, 'record')}"
            body += ["<section><h2>Columns</h2>", table(caption, columns, found, words=(1, 4)), "</section>"]
    body += ["<section><h2>Where from</h2>", facts([("Source", place), ("Study", study)]), "</section>"]
    footer = f"<p>{text('For this hospital alone. Rows are counted from 1, without the header.')}</p>"
    return document(title="Quality of the records", kind="data check", body="\n".join(body), footer=footer)


def _figures(fit: Suitability) -> list[tuple[str, str | None, str]]:
    left = f"{fit.left_out} are left out" if fit.left_out else "all are used"
    fewest = min((min(each.sizes) for each in fit.seats), default=0)
    under = "a teacher" if fit.unit is None else f"{fit.unit}s that vote"
    patients = None if fit.patients is None else str(fit.patients)
    return [
        ("Records", str(fit.records), left),
        ("Patients", patients, f"{fit.several} with several records"),
        ("Fewest records" if fit.unit is None else "Votes", str(fewest), under),
    ]


def _named(problem: Problem) -> str:
    return problem.column if problem.own in ("", problem.column) else f"{problem.column} ({problem.own})".strip()


def _rows(problem: Problem) -> str:
    if not problem.count:
        return ""
    named = ", ".join(map(str, problem.rows)) + ", ..." * (problem.count > len(problem.rows))
    return f"{problem.count}: {named}"
