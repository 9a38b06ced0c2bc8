"""What this node can prove about a study: its log, the coordinator's signed requests and outcomes, and a release.

A node that settles trusts what the coordinator says about which queries were answered, where that changes their
cost. Each such message is signed and kept, so a release with a label where the outcome said "not answered" (or the
reverse) proves that the coordinator lied. A release is signed too, as a whole: if a label contradicts an outcome,
the coordinator signed both. A released student is applied to own records only once its release is verified.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from cryptography import x509
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from party.party import COUNTED, FATE
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput, MalformedMessage, Refused
from protocols.features.feature_map import FeatureMap, read_features
from protocols.features.scored_model import OUTPUT, ScoredModel
from protocols.ledger.ledger import Ledger
from protocols.levels.table import check_believable
from protocols.levels.two_server.released import SignedRelease
from protocols.levels.two_server.signed_votes import sent_votes
from protocols.levels.two_server.statement import Fate
from protocols.reading import read_bytes, read_json
from protocols.refusals.code import Code
from protocols.release.labels import LABELS_FILE
from protocols.release.manifest import (
    MANIFEST_FILE,
    STATEMENT_FILE,
    STUDENT_FEATURES_FILE,
    check_file,
    check_files,
    read_manifest,
    signer,
)
from protocols.release.signatures import SIGNATURES_FILE
from protocols.release.sums import EVALUATION_FILE, SUMS_FILE, read_votes
from protocols.study.deployed import DeployedStudy
from protocols.study.features import numbers_in
from protocols.study.file import read_deployed
from protocols.study.votes import unit_sums
from protocols.sums.judging import Evaluation
from protocols.wire.frames import Ask, begins, read_frame
from protocols.wire.messages import ConcealedVotes, Outcome, VoteRequest, decode
from runtime.distribution import lacking


@dataclass(frozen=True)
class Discrepancy:
    """A check that failed. code: stable across versions."""

    code: str
    what: str


@dataclass(frozen=True)
class LedgerAudit:
    """What was checked, and which checks failed. unsettled: batches whose reservations stand; counted, not_counted:
    batches of which a guardian's statement says that this seat's votes counted, or did not."""

    entries: int
    batches: int
    unsettled: int
    requests: int
    outcomes: int
    compared: int
    counted: int
    not_counted: int
    findings: tuple[Discrepancy, ...]


NOTHING_CHECKED: Final = LedgerAudit(0, 0, 0, 0, 0, 0, 0, 0, ())


def audit_seat(
    ledger: Ledger,
    study: DeployedStudy,
    seat: str,
    *,
    authority: x509.Certificate,
    labels: Int64[ndarray, " queries"] | None,
    attested: SignedRelease | None,
) -> LedgerAudit:
    """The audit of one seat's ledger.

    labels: a release's class id for each query of the pool, below 0 for none; attested: what a guardian signed of that
    release, None in a study without one.
    """
    findings: list[Discrepancy] = []
    times: dict[int, int] = {}
    entries = 0
    try:
        for entry in ledger.log.entries():
            entries += 1
            if entry.event in ("reserved", "settled"):
                number = int(entry.fields["batch"])
                times.setdefault(number, entry.time_ns)
                kept = ledger.charged(number) if entry.event == "reserved" else ledger.settled(number)
                if sum(kept.values()) != entry.fields["total"]:
                    findings.append(
                        Discrepancy(
                            Code.SUMS_DIFFER, f"batch {number}: {entry.event} with an amount that the log lacks"
                        )
                    )
    except DataCorrupt as error:
        findings.append(Discrepancy(Code.CHAIN_BROKEN, str(error)))
    batches = sorted(times)
    seen: dict[str, dict[int, VoteRequest | Outcome]] = {"request": {}, "outcome": {}}
    for number, _, kind, signed in ledger.log.evidence():
        try:
            ask, message = _message(signed, study, seat, authority=authority, time_ns=times.get(number))
        except (Refused, MalformedMessage) as error:
            findings.append(Discrepancy(Code.BAD_EVIDENCE, f"batch {number}, {kind}: {error}"))
            continue
        seen.setdefault(kind, {})[number] = message
        if not ledger.log.contains(ask.seen):
            known = f"entry {ask.seen.count} of this log, which is missing here"
            findings.append(
                Discrepancy(Code.ROLLED_BACK, f"batch {number}, {kind}: the coordinator signed that it knows {known}")
            )
        stored = ledger.stored(number)
        digest = message.digest if isinstance(message, VoteRequest) else message.batch_digest
        if stored is None or stored.digest != digest or (kind == "request") != isinstance(message, VoteRequest):
            findings.append(
                Discrepancy(Code.BAD_EVIDENCE, f"batch {number}, {kind}: it differs from what this ledger charged")
            )
    for number in batches:
        if number not in seen["request"]:
            findings.append(Discrepancy(Code.NO_EVIDENCE, f"batch {number}: no signed request is kept for its charge"))
    compared = 0
    outcomes = {number: each for number, each in seen["outcome"].items() if isinstance(each, Outcome)}
    for number in batches:
        compared += _check_batch(ledger, study, seat, number, outcomes.get(number), labels, findings)
        _check_attested(ledger, number, attested, findings)
    if sum(amount for number in batches for amount in _amounts(ledger, number, seat).values()) != _spent(ledger, seat):
        findings.append(
            Discrepancy(Code.SUMS_DIFFER, "the charges of the batches do not add up to the account's total")
        )
    unsettled = len(ledger.unsettled())
    fates = [ledger.noted(each.batch_digest, FATE) for each in outcomes.values()]
    counted = sum(fate == COUNTED.encode() for fate in fates)
    not_counted = sum(fate is not None for fate in fates) - counted
    asked, told = len(seen["request"]), len(outcomes)
    return LedgerAudit(entries, len(batches), unsettled, asked, told, compared, counted, not_counted, tuple(findings))


def released_study(release: Path, *, authority: x509.Certificate, coordinator: str) -> str:
    """The digest of a release's study (hexadecimal), provided that `coordinator` signed it with these labels.

    Raises DataUnavailable, DataCorrupt, InvalidInput, or Refused ("bad_signature", "other_coordinator", as identify).
    """
    if not (release / MANIFEST_FILE).is_file():
        raise DataUnavailable(f"{release / MANIFEST_FILE} does not exist; allowed: a release of this study")
    signed_by = signer(release, authority).name
    if signed_by != coordinator:
        raise Refused(Code.OTHER_COORDINATOR, f"{signed_by!r} signed the release; allowed: {coordinator!r}")
    study, _, files = read_manifest(release)
    for name in (LABELS_FILE, SUMS_FILE, SIGNATURES_FILE):  # which of them there are depends on the study
        if (release / name).exists():
            check_file(release, name, files)
    return study


def unnamed_before(release: Path, voted: Iterable[DeployedStudy]) -> list[str]:
    """The names of the studies, out of those in which this node voted, that neither are the release's nor are among the
    earlier releases that its statement composes. Raises DataCorrupt."""
    study, _, files = read_manifest(release)
    check_file(release, STATEMENT_FILE, files)
    try:
        stated = read_json(release / STATEMENT_FILE)
        named = {study, *(str(each["study"]) for each in stated["earlier_releases"]["releases"])}
    except (DataUnavailable, KeyError, TypeError) as error:
        raise DataCorrupt(f"{STATEMENT_FILE} names no earlier releases: {error!r:.200}") from None
    return sorted(each.name for each in voted if each.digest.hex() not in named)


def released_labels(release: Path, study: DeployedStudy) -> Int64[ndarray, " queries"]:
    """The class id of each query that the study asks, below 0 where none was released. Raises DataCorrupt."""
    return read_votes(release, study).labels


def _message(
    signed: bytes, study: DeployedStudy, seat: str, *, authority: x509.Certificate, time_ns: int | None
) -> tuple[Ask, VoteRequest | Outcome]:
    """A kept frame and its message, checked as of the time when the batch was charged. Raises Refused,
    MalformedMessage.
    """
    now = datetime.datetime.now(datetime.UTC)
    then = now if time_ns is None else datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.UTC)
    # The outcome may have come much later than the charge, under a renewed certificate.
    frame, sender = read_frame(signed, authority=authority, now=max(then, begins(signed)), role="coordinator")
    if not isinstance(frame, Ask) or frame.study != study.digest or frame.seat != seat:
        raise MalformedMessage("it is not a request to this seat of this study")
    if sender.name != study.terms.coordinator:
        raise Refused(Code.OTHER_COORDINATOR, f"{sender.name!r} signed it; allowed: {study.terms.coordinator!r}")
    message = decode(frame.envelope)
    if not isinstance(message, VoteRequest | Outcome):
        raise MalformedMessage("it holds neither a request nor an outcome")
    return frame, message


def _check_batch(
    ledger: Ledger,
    study: DeployedStudy,
    seat: str,
    number: int,
    outcome: Outcome | None,
    labels: Int64[ndarray, " queries"] | None,
    findings: list[Discrepancy],
) -> int:
    """Compares one batch's settlement with its outcome, and the outcome with the release; returns the number of queries
    compared."""
    ids = np.array(ledger.queries(number), dtype=np.int64)
    settled = ledger.settled(number)
    if outcome is None:
        if settled and study.budgets.settles:
            findings.append(Discrepancy(Code.NO_EVIDENCE, f"batch {number}: settled without a signed outcome"))
        return 0
    try:
        told = check_believable(study, outcome, seat)
        sent = _digest_of_sent(ledger, study, seat, number)
        if told is not None and told.fate is Fate.COUNTED and told.vote != sent:
            what = f"batch {number}: the guardian counted other votes of this seat than this ledger holds"
            findings.append(Discrepancy(Code.OTHER_VOTES, what))
    except Refused as error:
        findings.append(Discrepancy(Code.BAD_EVIDENCE, f"batch {number}: {error}"))
    if len(outcome.answered) != len(ids):
        findings.append(
            Discrepancy(Code.BAD_EVIDENCE, f"batch {number}: its outcome is for {len(outcome.answered)} queries")
        )
        return 0
    position = study.seats[seat]
    takes_part = study.participation.of(position).votes(ids)[0]
    amounts = study.budgets.amount(int(takes_part.sum()), int((takes_part & outcome.answered).sum()))
    if settled and settled != {seat: int(amounts[position])}:
        findings.append(
            Discrepancy(Code.SUMS_DIFFER, f"batch {number}: settled with another amount than its outcome gives")
        )
    if labels is None or study.votes.again(ids):
        return 0  # of judges a release has no labels, but what they said, which a guardian signs
    inside = ids < len(labels)
    if not inside.all():
        findings.append(
            Discrepancy(Code.RELEASE_DIFFERS, f"batch {number}: the release has only {len(labels)} queries")
        )
    shown = labels[ids[inside]] >= 0
    said = outcome.answered[inside]
    for query in ids[inside][shown & ~said].tolist():
        findings.append(
            Discrepancy(
                Code.OUTCOME_FALSE, f"query {query}: the coordinator signed 'not answered', the release has a label"
            )
        )
    for query in ids[inside][said & ~shown].tolist():
        findings.append(
            Discrepancy(
                Code.OUTCOME_DIFFERS, f"query {query}: the coordinator signed 'answered', the release has no label"
            )
        )
    return int(inside.sum())


def _check_attested(ledger: Ledger, number: int, attested: SignedRelease | None, findings: list[Discrepancy]) -> None:
    """Whether a guardian signed what is released of a batch that this ledger charged."""
    stored = ledger.stored(number)
    if attested is None or stored is None:
        return
    try:
        attested.check(number, request=stored.digest, queries=ledger.queries(number))
    except Refused as error:
        findings.append(Discrepancy(error.code, str(error)))


def _digest_of_sent(ledger: Ledger, study: DeployedStudy, seat: str, number: int) -> bytes:
    """The digest of the signed votes of a batch, as this ledger holds them; empty at a level without a guardian."""
    stored = ledger.stored(number)
    if stored is None or not study.confidentiality.second_server:
        return b""
    sent = decode(stored.payload)
    return sent_votes(sent).digest(study.digest, stored.digest, seat) if isinstance(sent, ConcealedVotes) else b""


def _amounts(ledger: Ledger, number: int, seat: str) -> Mapping[str, int]:
    settled = ledger.settled(number) or ledger.charged(number)
    return {seat: settled.get(seat, 0)}


def _spent(ledger: Ledger, seat: str) -> int:
    balances = ledger.balances()
    return balances[seat].spent if seat in balances else 0


STUDY_FILE, STUDENT_FILE, STUDENT_FIGURES_FILE = "study.toml", "student.onnx", "student.json"


@dataclass(frozen=True, eq=False)
class JudgesFound:
    """What hospitals' judges found of a released student, as the release says; `verify` makes it again.

    accuracy: of its decisions, with the ends of its 95 % interval; calibrated: how often a class is right of which the
    student gives a probability in each bin, of each finding or the one label; classes: of the columns of its
    probabilities; of_findings: the accuracy of each, by name, where `accuracy` is of the first.
    """

    terms: Evaluation
    accuracy: tuple[float, float, float]
    calibrated: Float64[ndarray, "told bins"] = field(repr=False)
    classes: tuple[int, ...]
    of_findings: Mapping[str, tuple[float, float, float]]

    def applied(
        self, given: Float64[ndarray, "records classes"], labels: Int64[ndarray, " records"]
    ) -> tuple[Int64[ndarray, " records"], Float64[ndarray, " records"]]:
        """The decisions that were judged, and the calibrated probability that each is right; where the student gave no
        probabilities, its label, and not a number."""
        known, two = np.isfinite(given).all(axis=1), given.shape[1] == 2
        decided = np.where(known, self.terms.decisions(given), labels)
        shown = given[:, 1] if two else given[np.arange(len(given)), decided]
        chance = self.calibrated[0][np.searchsorted(self.terms.edges, shown, side="right")]
        return decided, np.where(known, np.where(two & (decided == 0), 1.0 - chance, chance), np.nan)


@dataclass(frozen=True, eq=False)
class VerifiedStudent:
    """A student whose release the consortium's coordinator signed, and the study that says how records are encoded.

    features: what the student sees of a record, None for the record itself; judged: None where nobody judged it;
    ranges: the least and the largest number of each numeric column that it learned from.
    """

    study: DeployedStudy
    content: bytes = field(repr=False)
    where: str
    features: FeatureMap | None = None
    judged: JudgesFound | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def outside(self, inputs: Float32[ndarray, "records ..."]) -> list[list[str]]:
        """Of each record, the columns whose number lies outside what the student learned from."""
        numbers = numbers_in(self.study.terms.features, inputs) if self.ranges else {}
        beyond = {
            column: (found < self.ranges[column][0]) | (found > self.ranges[column][1])
            for column, found in numbers.items()
            if column in self.ranges
        }
        return [[column for column, marked in beyond.items() if marked[row]] for row in range(len(inputs))]

    def predict(self, inputs: Float32[ndarray, "records ..."]) -> Int64[ndarray, "records *findings"]:
        """The class id of each record, as `decided`; of several findings 1 for each that is named, else 0."""
        return self._labels(inputs) if self.study.findings else self.decided(inputs)[0]

    def scores(self, inputs: Float32[ndarray, "records ..."]) -> Float64[ndarray, "records findings"]:
        """What the student gives as the probability of each finding. Raises InvalidInput as `decided`."""
        return self._output(inputs, OUTPUT, kinds="f").astype(np.float64)

    def chances(self, inputs: Float32[ndarray, "records ..."]) -> Float64[ndarray, "records findings"]:
        """The probability of each finding, as judges calibrated it, if they did. Raises InvalidInput as `decided`."""
        given = self.scores(inputs)
        if self.judged is None:
            return given
        bins = np.searchsorted(self.judged.terms.edges, given, side="right")
        found: Float64[ndarray, "records findings"] = self.judged.calibrated[np.arange(given.shape[1]), bins]
        return found

    def decided(
        self, inputs: Float32[ndarray, "records ..."]
    ) -> tuple[Int64[ndarray, " records"], Float64[ndarray, " records"]]:
        """The class id of each record, and the calibrated probability that it is right, not a number where nobody
        judged the student. Raises InvalidInput without onnxruntime, or if the student cannot take them."""
        labels = self._labels(inputs)
        if self.judged is None:
            return labels, np.full(len(labels), np.nan)
        model = ScoredModel(self.content, self.judged.classes, self.features)
        return self.judged.applied(model.probabilities(inputs, classes=self.study.classes), labels)

    def _labels(self, inputs: Float32[ndarray, "records ..."]) -> Int64[ndarray, "records *findings"]:
        output = self._output(inputs, None, kinds="iu")
        if len(output) and not 0 <= output.min() <= output.max() < self.study.labelled.states:
            raise InvalidInput(
                f"{self.where} gives the classes {output.min()} to {output.max()}; allowed: 0 to "
                f"{self.study.labelled.states - 1}"
            )
        return output.astype(np.int64)

    def _output(self, inputs: Float32[ndarray, "records ..."], name: str | None, *, kinds: str) -> ndarray:
        """What the student gives under this name (None: first) of each record, or of each finding of it."""
        try:
            from protocols.features.onnx_model import OnnxModel
        except ModuleNotFoundError as missing:
            raise lacking(missing, "a released student", "onnx") from missing
        model = OnnxModel.of(self.content, where=self.where, own=False)
        inputs = inputs if self.features is None else self.features(inputs)
        # An image may have one more axis for its channels than the study's inputs.
        wanted = [size for size in model.session.get_inputs()[0].shape[1:] if isinstance(size, int)]
        shaped = inputs.reshape(len(inputs), *wanted) if np.prod(wanted) == np.prod(inputs.shape[1:]) else inputs
        output, findings = model.first_output(shaped, name=name), self.study.findings
        shape = (len(inputs), len(findings)) if findings else (len(inputs),)
        if output.shape != shape or output.dtype.kind not in kinds:
            what = "one a record and finding" if findings else "class ids, one a record"
            raise InvalidInput(f"{self.where} gives {output.dtype} of shape {output.shape}; allowed: {what}, {shape}")
        return output


def read_student(folder: Path, *, authority: x509.Certificate, coordinator: str) -> VerifiedStudent:
    """The student of a release that the coordinator signed and nobody altered since, with its features.

    authority: the consortium's certificate, as it was obtained at enrolment. Raises Refused or DataCorrupt for a
    signature or file that is not as signed, InvalidInput for a release without a student, and for features that are not
    of the study's records.
    """
    digest = released_study(folder, authority=authority, coordinator=coordinator)
    check_files(folder)
    study = read_deployed(folder / STUDY_FILE)
    if study.digest.hex() != digest:
        raise DataCorrupt(f"{folder / STUDY_FILE} is of study {study.digest.hex()[:16]}; allowed: {digest[:16]}")
    path = folder / STUDENT_FILE
    if not path.is_file():
        raise InvalidInput(f"{folder} has no {STUDENT_FILE}; allowed: a release with a student, not of labels alone")
    features = None
    if (folder / STUDENT_FEATURES_FILE).is_file():
        features = read_features(folder / STUDENT_FEATURES_FILE, None)
        if features.input_shape != study.terms.input_shape:
            raise InvalidInput(
                f"{folder / STUDENT_FEATURES_FILE} is made of records of shape {features.input_shape}; allowed: "
                f"{study.terms.input_shape}, the study's"
            )
    judged, ranges = _judges_found(folder, study), _ranges(folder)
    return VerifiedStudent(study, read_bytes(path, most=2**31), str(path), features, judged, ranges)


def _ranges(folder: Path) -> dict[str, tuple[float, float]]:
    """The ranges of the numbers that the student learned from, by column. Raises DataCorrupt."""
    try:
        found = dict(read_json(folder / STUDENT_FIGURES_FILE)["ranges"])
        return {str(column): (float(low), float(high)) for column, (low, high) in found.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise DataCorrupt(f"{STUDENT_FIGURES_FILE} cannot be read: {error!r:.200}") from None


def _judges_found(folder: Path, study: DeployedStudy) -> JudgesFound | None:
    """What a release says that judges found; None where nobody judged. Raises DataCorrupt."""
    if not (folder / EVALUATION_FILE).exists():
        return None
    terms = unit_sums(study).evaluation
    try:
        values, classes = read_json(folder / EVALUATION_FILE), read_json(folder / STUDENT_FIGURES_FILE)["classes"]
        several, names = bool(study.findings), study.findings or ("",)
        of = {name: values["figures"][name] if several else values["figures"] for name in names}
        right = {name: tuple(map(float, each["accuracy"])) for name, each in of.items()}
        said = [values["calibrated"][name] if several else values["calibrated"] for name in names]
        calibrated = np.array([[float(each) for each in row] for row in said])
        within = all(0 <= low <= value <= high <= 1 for value, low, high in right.values())
        if terms is None or calibrated.shape != (len(names), terms.bins) or not within:
            raise ValueError("its figures are not those of judges of the study")
        if not ((calibrated >= 0) & (calibrated <= 1)).all():
            raise ValueError("its calibrated probabilities are not in [0, 1]")
        accuracy = {name: (each[0], each[1], each[2]) for name, each in right.items()}
        shown = accuracy if several else {}
        return JudgesFound(terms, accuracy[names[0]], calibrated, tuple(map(int, classes)), shown)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataCorrupt(f"{EVALUATION_FILE} cannot be read: {error!r:.200}") from None
