"""A release's folder as values: what `release` writes and `verify` reads; and the page of a count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # parsed JSON, checked below

import numpy as np
from cryptography import x509
from jaxtyping import Int64
from numpy import ndarray

from coordinator.release.charges import voted
from coordinator.release.evaluation import ReleasedEvaluation, read_evaluation
from coordinator.release.evidence import Receipt, ReleaseEvidence, files_of
from coordinator.release.pages import (
    bill_of_materials,
    model_card,
    privacy_page,
    report_page,
    translated,
    translated_pages,
)
from coordinator.release.residuals import ReleasedResiduals, read_residuals
from coordinator.release.statement import EarlierRelease, Facts, read_statement, stated_facts
from coordinator.students.findings import thresholds_of
from protocols import reading
from protocols.claims.languages import LANGUAGES
from protocols.claims.strength import strength
from protocols.crypto.identity import to_pem
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.plural import counted
from protocols.ranges import whole
from protocols.release.counts import (
    ANY,
    COUNTS_FILE,
    COUNTS_JSON,
    EVERYWHERE,
    Count,
    counts_csv,
    counts_json,
    counts_of,
    to_text,
)
from protocols.release.labels import LABELS_FILE, findings_csv, labels_csv
from protocols.release.manifest import (
    AUTHORITY_FILE,
    COORDINATOR_FILE,
    MANIFEST_FILE,
    SIGNATURE_FILE,
    STATEMENT_FILE,
    check_file,
    read_manifest,
    signer,
)
from protocols.release.signatures import SIGNATURES_FILE, signatures_text
from protocols.release.sums import (
    EVALUATION_FILE,
    QUERIES_FILE,
    RESIDUALS_FILE,
    SOFT_LABELS_FILE,
    SUMS_FILE,
    LabelsOfPool,
    read_soft_labels,
    read_votes,
    soft_labels_csv,
    sums_csv,
)
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed, write_study
from protocols.study.findings import PRESENT
from protocols.study.purposes import ForCounts, ForLabels, Purpose
from protocols.study.several_hospitals import each_seat
from protocols.study.votes import TeacherVotes, UnitSums, Votes, unit_sums
from protocols.sums.blocks import Blocks
from protocols.votes import NOT_ASKED
from runtime.page import document, table, text, verdict

_STUDY_FILE, _STUDENT_FIGURES_FILE = "study.toml", "student.json"
PRIVACY_FILE, REPORT_FILE, CARD_FILE = "privacy.html", "report.html", "model_card.md"
# CycloneDX's name for a bill of materials in JSON.
BILL_FILE = "sbom.cdx.json"
# What sentences and a layout are in: of another version's, only the figures can be compared.
WORDED = (STATEMENT_FILE, PRIVACY_FILE, *map(translated, LANGUAGES), REPORT_FILE, CARD_FILE, BILL_FILE)
EARLIER_FOLDER = "evidence/earlier"
# The files kept of an earlier release: enough to check who signed its statement.
EARLIER_FILES = (STATEMENT_FILE, MANIFEST_FILE, SIGNATURE_FILE, COORDINATOR_FILE)


@dataclass(frozen=True, eq=False)
class ReleasedStudy:
    """What was released: study, labels and reinforced labels; where records vote, the noisy sums, the soft labels of
    the pool, and what judges said, or what came of a second sum."""

    study: DeployedStudy
    labels: Int64[ndarray, " queries"] = field(repr=False)
    reinforced: Int64[ndarray, " queries"] = field(repr=False)
    pool: LabelsOfPool | None = field(default=None, repr=False)
    cells: Int64[ndarray, "rows classes"] | None = field(default=None, repr=False)
    evaluation: ReleasedEvaluation | None = None
    residuals: ReleasedResiduals | None = None

    @property
    def told(self) -> Int64[ndarray, "queries *findings"]:
        """The label of each record of the pool, < 0 where there is none; where sums are released, its likeliest class.
        Of several findings, of each whether it is there: where sums are released, by its mean probability."""
        if self.pool is None:
            labels = np.where(self.labels >= 0, self.labels, self.reinforced)
            folded = self.study.votes.asks.folded(labels)
            return labels if folded is None else folded
        chances = self.pool.probabilities
        return (chances >= thresholds_of(chances)).astype(np.int64) if self.study.findings else chances.argmax(axis=1)

    @property
    def counts(self) -> list[tuple[str, int]]:
        """How often labels name each class, or each finding; where sums are released, the pool's likeliest classes."""
        if names := self.study.findings:
            return list(zip(names, (self.told == PRESENT).sum(axis=0).tolist(), strict=True))
        labels = self.labels if self.pool is None else self.told
        names = self.study.terms.class_names
        return list(zip(names, np.bincount(labels[labels >= 0], minlength=len(names)).tolist(), strict=True))


def read_released(folder: Path) -> ReleasedStudy:
    """Study and labels of a release. Raises DataCorrupt if they do not match, InvalidInput for an invalid study
    file."""
    study = read_deployed(folder / _STUDY_FILE)
    found = read_votes(folder, study)
    if (found.reinforced >= 0).any() and not study.mechanism.interactive:
        raise DataCorrupt("labels are reinforced by a student, but the study's mechanism is not interactive")
    made = (folder / SOFT_LABELS_FILE).exists() or (folder / _STUDENT_FIGURES_FILE).exists()
    if made and found.cells is None and (found.labels == NOT_ASKED).all():
        raise DataCorrupt("soft labels or a student are released without the sums or labels that they are made of")
    pool = read_soft_labels(folder, study) if found.cells is not None and study.votes.pool else None
    again = read_evaluation(folder, study), read_residuals(folder, study)
    return ReleasedStudy(study, found.labels, found.reinforced, pool, found.cells, *again)


def contents(
    released: ReleasedStudy,
    evidence: ReleaseEvidence,
    statement: Mapping[str, Any],
    student: Mapping[str, Any] | None,
    *,
    queries: Blocks | None,
    signatures: Mapping[int, bytes] | None,
    coordinator: x509.Certificate,
    authority: x509.Certificate,
) -> dict[str, bytes]:
    """The content of every file that follows from these, by name: what a release is written as, and checked against.

    queries: where records vote; signatures: the guardian's, by the number of the batch, in a study with one. What
    comes besides: manifest and signatures, the files that `student` names, and those of earlier releases.
    """
    study = released.study
    batches = [
        (len(charge.queries), int((released.labels[list(charge.queries)] >= 0).sum()))
        for charge in evidence.charges
        if not study.votes.again(np.array(charge.queries))
        and (charge.settled is not None or charge.number in evidence.given_up)
    ]
    given = _OF_VOTES[type(study.votes)](released, evidence)
    texts = {
        **given,
        _STUDY_FILE: write_study(study),
        STATEMENT_FILE: to_json(statement),
        PRIVACY_FILE: privacy_page(statement),
        **translated_pages(statement),
        BILL_FILE: to_json(bill_of_materials(statement, student, given)),
        **_PAGES[study.votes.words](released, evidence, statement, student, batches),
        COORDINATOR_FILE: to_pem(coordinator).decode(),
        AUTHORITY_FILE: to_pem(authority).decode(),
        **files_of(evidence),
    }
    if released.evaluation is not None:
        texts[EVALUATION_FILE] = to_json(released.evaluation.to_json(study))
    if released.residuals is not None:
        texts[RESIDUALS_FILE] = to_json(released.residuals.to_json(study))
    if student is not None:
        texts[_STUDENT_FIGURES_FILE] = to_json(student)
    if signatures is not None:
        texts[SIGNATURES_FILE] = signatures_text(signatures)
    made = {name: text.encode() for name, text in texts.items()}
    return made if queries is None else {**made, QUERIES_FILE: queries.to_bytes()}


def _labels(released: ReleasedStudy, evidence: ReleaseEvidence) -> dict[str, str]:
    study, labels = released.study, released.labels
    told = study.votes.asks.folded(labels)
    made = labels_csv(labels, released.reinforced) if told is None else findings_csv(told, study.findings)
    return {LABELS_FILE: made}


def _sums(released: ReleasedStudy, evidence: ReleaseEvidence) -> dict[str, str]:
    if released.cells is None:
        return {}
    use = unit_sums(released.study).use
    return {SUMS_FILE: sums_csv(released.cells, released.study.labelled), **_MADE[type(use)](released, evidence)}


def _soft_labels(released: ReleasedStudy, evidence: ReleaseEvidence) -> dict[str, str]:
    made = None if released.pool is None else soft_labels_csv(released.pool, released.study.labelled)
    return {} if made is None else {SOFT_LABELS_FILE: made}


def _counts(released: ReleasedStudy, evidence: ReleaseEvidence) -> dict[str, str]:
    study, voted = released.study, _voted(released.study, evidence)
    counts = _table(released, evidence)
    return {COUNTS_FILE: counts_csv(counts), COUNTS_JSON: to_text(counts_json(study, counts, voted=voted))}


def _voted(study: DeployedStudy, evidence: ReleaseEvidence) -> list[str]:
    """The seats whose patients are in the sums."""
    return [seat.party for seat in study.roster if voted(evidence, seat.party)]


def _table(released: ReleasedStudy, evidence: ReleaseEvidence) -> list[Count]:
    study = released.study
    return [] if released.cells is None else counts_of(study, released.cells, voted=_voted(study, evidence))


def _pages_of_labels(
    released: ReleasedStudy,
    evidence: ReleaseEvidence,
    statement: Mapping[str, Any],
    student: Mapping[str, Any] | None,
    batches: Sequence[tuple[int, int]],
) -> dict[str, str]:
    study, found = released.study, released.evaluation
    judged, accuracy = (None, None) if found is None else (found.rows(study), found.accuracy(study))
    return {
        CARD_FILE: model_card(statement, student, released.counts, judged),
        REPORT_FILE: report_page(statement, student, released.counts, batches, judged, accuracy),
    }


def _page_of_counts(
    released: ReleasedStudy,
    evidence: ReleaseEvidence,
    statement: Mapping[str, Any],
    student: Mapping[str, Any] | None,
    batches: Sequence[tuple[int, int]],
) -> dict[str, str]:
    missing = [seat.party for seat in released.study.roster if not voted(evidence, seat.party)]
    return {REPORT_FILE: counts_page(released.study, _table(released, evidence), statement, missing=missing)}


# What is written of each kind of votes, what is made of sums, and the pages, by what sentences call it.
_OF_VOTES: dict[type[Votes], Callable[[ReleasedStudy, ReleaseEvidence], dict[str, str]]] = {
    TeacherVotes: _labels,
    UnitSums: _sums,
}
_MADE: dict[type[Purpose], Callable[[ReleasedStudy, ReleaseEvidence], dict[str, str]]] = {
    ForLabels: _soft_labels,
    ForCounts: _counts,
}
_PAGES = {TeacherVotes.words: _pages_of_labels, ForLabels.words: _pages_of_labels, ForCounts.words: _page_of_counts}


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises DataCorrupt."""
    try:
        value = reading.read_json(path)
    except DataUnavailable as error:
        raise DataCorrupt(f"{path.name} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise DataCorrupt(f"{path.name} holds a {type(value).__name__}; allowed: a JSON object")
    return value


def to_json(value: Mapping[str, Any]) -> str:
    """The JSON text as it is written to the file: keys in the statement's order, no NaN."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def student_figures(folder: Path) -> dict[str, Any] | None:
    """The figures of the student, or None if the release has no student. Raises DataCorrupt."""
    path = folder / _STUDENT_FIGURES_FILE
    return read_object(path) if path.exists() else None


def read_earlier(folder: Path, authority: x509.Certificate) -> tuple[EarlierRelease, ...]:
    """The earlier releases stored in a release, each with its statement's signature checked against the same authority.

    Raises DataCorrupt, InvalidInput, Refused.
    """
    kept = folder / EARLIER_FOLDER
    if not kept.is_dir():
        return ()
    return tuple(signed_statement(each, authority) for each in sorted(kept.iterdir()))


def signed_statement(folder: Path, authority: x509.Certificate) -> EarlierRelease:
    """The statement in the folder of a release, or of the files kept of it, after checking signature and hashes."""
    signer(folder, authority)
    _, _, files = read_manifest(folder)
    for name in (STATEMENT_FILE, COORDINATOR_FILE):
        check_file(folder, name, files)
    return read_statement(folder / STATEMENT_FILE)


def _pool_facts(*, p_value: float, differs: Sequence[Sequence[float]]) -> dict[str, Any]:
    return {
        "p_value": float(p_value),
        "differs": [[int(at), float(by), float(deviations)] for at, by, deviations in differs],
    }


def facts_of(
    released: ReleasedStudy,
    evidence: ReleaseEvidence,
    receipts: list[Receipt],
    earlier: tuple[EarlierRelease, ...],
    statement: Mapping[str, Any],
) -> Facts:
    """The facts needed to make a statement again, taken from the one that was read. Raises DataCorrupt."""
    try:
        given = dict(statement["stated_by_the_coordinator"])
        stated = stated_facts(
            created=str(given["created"]),
            software=str(given["software"]),
            stop=str(given["stop"]),
            left_out={
                str(seat): {str(int(number)): str(code) for number, code in batches.items()}
                for seat, batches in given["left_out"].items()
            },
            differences={
                str(seat): whole(STATEMENT_FILE, "differences", nano) for seat, nano in given["differences"].items()
            },
            named=tuple(tuple(str(name) for name in each) for each in given["named_hospitals"]),
            unproven=tuple(str(seat) for seat in given["unproven"]),
            libraries={str(name): str(version) for name, version in given["libraries"].items()},
            pool=None if given["pool"] is None else _pool_facts(**given["pool"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataCorrupt(f"{STATEMENT_FILE}: the coordinator's stated facts are incomplete: {error!r:.200}") from None
    if stated != given:
        raise InvalidInput(f"{STATEMENT_FILE}: the coordinator's stated facts hold keys or values that are not allowed")
    return Facts(released.study, released.labels, released.reinforced, evidence, receipts, earlier, stated)


def counts_page(
    study: DeployedStudy, counts: Sequence[Count], statement: Mapping[str, Any], *, missing: Sequence[str]
) -> str:
    """The page. counts: empty where nothing was released; missing: the seats whose patients are not counted."""
    worst = max((each.figure for each in each_seat(study)), key=lambda each: each.epsilon)
    left = [("Not counted:", f"{', '.join(map(study.named, missing))}, which did not answer.")] if missing else []
    points = [
        ("How sure:", "noise moves the true count out of its interval with a chance of 5 %. Patients who come later "
         "are not counted."),
        ("Below its noise:", "a count that could be of nobody is not printed; the true one is below the number given."),
        *left,
        ("Who is protected:", f"{strength(worst)} Who exactly, and who is not, is in privacy.html."),
    ]  # fmt: skip
    sites = list(dict.fromkeys(each.site for each in counts))
    body = [verdict(_says(study, counts), points)]
    for site in sites:
        held = [each for each in counts if each.site == site]
        heading = "All hospitals together" if site == EVERYWHERE else study.named(site)
        body += [f"<section><h2>{text(heading)}</h2>", *_tables(study, held), "</section>"]
    body.append('<p>Who saw what, and how to check it: <a href="privacy.html">privacy.html</a>.</p>')
    return document(title=statement["study"]["name"], kind="count of patients", body="\n".join(body),
                    study=statement["study"]["digest"])  # fmt: skip


def _says(study: DeployedStudy, counts: Sequence[Count]) -> str:
    if not counts:
        return "Nothing was counted."
    what = study.unit
    return f"These hospitals have {_words(counts[0])} {what}s of which the study could learn."


def _words(count: Count) -> str:
    if count.patients is None:
        return f"fewer than {count.high}"
    return f"about {count.patients} ({count.low} to {count.high})"


def _tables(study: DeployedStudy, held: Sequence[Count]) -> Iterable[str]:
    """A table for each column: a row for each value, with all classes and each of them."""
    labels = list(dict.fromkeys(each.label for each in held))
    head = [f"{study.terms.label} {label}" if label != ANY else "all" for label in labels]
    for column in dict.fromkeys(each.column for each in held):
        of = [each for each in held if each.column == column]
        values = list(dict.fromkeys(each.value for each in of))
        rows = [[value or "in all", *(_shown(each) for each in of if each.value == value)] for value in values]
        caption = column or f"How many {study.unit}s"
        yield table(f"{caption}, {counted(len(values), 'row')}" if column else caption, [column or "", *head], rows)


def _shown(count: Count) -> str:
    if count.patients is None:
        return f"below noise, < {count.high}"
    return f"{count.patients} ({count.low} to {count.high})"
