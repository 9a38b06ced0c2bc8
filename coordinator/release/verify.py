"""Verifying a release: signature, hashes, log, receipts, charges and figures, by anyone who has the folder.

Every file is made again from the study, the labels and the evidence, and compared byte for byte; what cannot be made
again is a check that was not made in full, with the reason. In another version's release the figures are compared, and
the words are not. Verification cannot show that noise was added, that all earlier releases are listed, how a student
was trained, or that votes were counted as they came; in a study with a guardian it shows that the guardian computed
the same labels or sums.
"""

from __future__ import annotations

import datetime
import html
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar  # Any: parsed JSON

import numpy as np
from cryptography import x509
from jaxtyping import Float32
from jinja2 import TemplateError
from numpy import ndarray

from coordinator.labelling.soft_labels import SoftLabels, labels_again, members_of, pool_facts, soft_labels_of_study
from coordinator.labelling.study_creation import check_pool, read_pool
from coordinator.labelling.training import scores_student
from coordinator.release import folder as layout
from coordinator.release.charges import (
    charges_by_seat,
    charges_in_words,
    check_charges,
    check_covered,
    check_receipts,
    confirmed,
    guardian_counted,
    refused_receipts,
)
from coordinator.release.evaluation import check_judges
from coordinator.release.evidence import Receipt, ReleaseEvidence, evidence_in, receipts, time_of
from coordinator.release.folder import (
    ReleasedStudy,
    contents,
    facts_of,
    read_earlier,
    read_object,
    read_released,
    student_figures,
)
from coordinator.release.residuals import check_residuals
from coordinator.release.statement import statement
from coordinator.students import SCORES
from coordinator.students.student import Student
from protocols.crypto.identity import PEM_BYTES, Identity, certificate_from_pem, fingerprint, identify, in_both_forms
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable
from protocols.installing import install
from protocols.labelling.coordinator import AGAIN
from protocols.ledger.amount import Amount
from protocols.levels.two_server.released import read_signed
from protocols.plural import counted
from protocols.reading import JSON_BYTES, read_bytes
from protocols.release.manifest import AUTHORITY_FILE, STATEMENT_FILE, check_files, files_in, read_manifest, signer
from protocols.release.model_signature import check_model_signature
from protocols.release.signatures import SIGNATURES_FILE, read_signatures
from protocols.release.sums import QUERIES_FILE, SOFT_LABELS_FILE
from protocols.study.deployed import DeployedStudy
from protocols.study.queries_file import blocks_of
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.sums.blocks import Blocks
from runtime.distribution import installed_version

_CLOCK_SKEW = datetime.timedelta(minutes=5)
# The float64 functions of another machine may differ in the last digits.
_RELATIVE = 1e-9
# Soft labels are fitted by an optimiser, which may stop a little earlier on another machine.
_SAME_CHANCE = 1e-3
# Figures of three digits, of which the last may be rounded otherwise there.
_ROUNDED = 0.02
# What a statement says in words alone, which another version may order otherwise.
_IN_WORDS: Final = ("in_short", "who_saw_what", "kept", "not_covered", "how_to_verify")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Check:
    """One check: its name, whether it passed, what was found, and what to do next ("" if nothing).

    passed: None where it was not made in full; next_step then says what would complete it, or why nothing can.
    """

    name: str
    passed: bool | None
    message: str
    next_step: str


_GIVE_AUTHORITY: Final = (
    "give --authority FILE, the consortium's certificate as it came to you by another way than this folder (authority "
    "of an invitation, authority.pem of a node's home)"
)
_ASK_AGAIN = "do not use the release; ask the coordinator for the folder again and compare its fingerprint"
_FORGED = (
    "do not use the release; the folder is as the coordinator signed it, so tell the consortium and the hospitals "
    "concerned: their nodes hold their own logs to compare with"
)
_UNCOVERED = (
    "do not rely on the figures of these seats until their hospitals have run `conclave-party verify STUDY "
    "--release FOLDER`, or have given their nodes' signed evidence: only they know what they were told and charged"
)
_REFUSED = (
    "ask the hospitals whose receipts were refused to run `conclave-party verify STUDY --release FOLDER`: the "
    "state of their ledgers is not confirmed, and only their nodes can show whether they were told another outcome"
)
_GIVE_POOL = "give --pool FILE, the study's public pool"
_OTHER_VERSION = "verify it with Conclave {}, which made it: only that version has the same words to compare with"


class _Checks:
    """Runs checks in order; one that needs the result of a failed check is not run, and counts as failed."""

    def __init__(self) -> None:
        self.done: list[Check] = []

    def run(self, name: str, look: Callable[[], tuple[_T, str, str]], next_step: str) -> _T | None:
        """What `look` found. It also gives the message, and what would complete the check: "" where nothing is left.

        next_step: if it fails, by an error of this project or of the system.
        """
        try:
            found, message, left = look()
        except (ConclaveError, OSError, RecursionError) as error:  # a file may be nested too deeply
            self.done.append(Check(name, False, str(error), next_step))
            return None
        self.done.append(Check(name, None if left else True, message, left))
        return found

    def skip(self, *names: str) -> None:
        self.done += [
            Check(name, False, "not checked, because an earlier check failed", "see that check") for name in names
        ]


def verify_release(
    folder: Path, authority: Path | None, *, pool: Path | None = None, now: datetime.datetime | None = None
) -> list[Check]:
    """All checks of a release, in order; the release is valid if none failed. Never raises, whatever the content.

    authority: the consortium's certificate, as obtained at enrolment; None trusts the copy in the folder, which only
    shows that the folder is consistent. pool: the public pool, without which soft labels are not checked in full; now:
    UTC; None for the current time.
    """
    checks = _Checks()
    today = now or datetime.datetime.now(datetime.UTC)
    trusted = checks.run(AUTHORITY, lambda: _authority(folder, authority), "give the certificate of your consortium")
    if trusted is None:
        checks.skip("signature", "files", "model signature", *_CONTENT)
        return checks.done
    coordinator = checks.run("signature", lambda: _signature(folder, trusted, today), _ASK_AGAIN)
    whole = checks.run("files", lambda: _files(folder), _ASK_AGAIN)
    model = checks.run("model signature", lambda: _model_signature(folder, trusted), _ASK_AGAIN)
    if coordinator is None or whole is None:
        checks.skip(*_CONTENT)
        return checks.done
    _check_content(checks, _Folder(folder, trusted, coordinator, model), pool)
    return checks.done


@dataclass(frozen=True)
class _Folder:
    """A folder whose signature and hashes were checked: its authority, its signer, and the name of its model."""

    path: Path
    authority: x509.Certificate
    coordinator: Identity
    model_name: str | None


AUTHORITY: Final = "authority"
_COVERED, _SOFT = "receipts cover every charge", "soft labels"
_CONTENT = (
    "study and labels", "audit log", "signed frames", "charges", "receipts", _COVERED, "statement", "student", "pages",
)  # fmt: skip


def _check_content(checks: _Checks, folder: _Folder, pool_file: Path | None) -> None:
    """Checks what the signed files say; each check builds on the earlier ones."""
    path = folder.path
    released = checks.run("study and labels", lambda: _released(folder), _FORGED)
    evidence = checks.run("audit log", lambda: _evidence(path), _FORGED)
    if released is None or evidence is None:
        checks.skip(*_CONTENT[2:])
        return
    pool = None if pool_file is None else checks.run("pool", lambda: _pool(pool_file, released.study), "give the pool")
    of_sums = _OF_VOTES[type(released.study.votes)](checks, path, released, evidence, pool)
    guarded_by = released.study.confidentiality.second_server
    if guarded_by:
        checks.run("guardian's signatures", lambda: _guardian(path, released, evidence), _FORGED)
    opened = checks.run("signed frames", lambda: _frames(evidence, folder.authority), _FORGED)
    charged = checks.run("charges", lambda: _charges(released, evidence), _FORGED)
    if opened is None or charged is None:
        checks.skip(*_CONTENT[4:])
        return
    if checks.run("receipts", lambda: _receipts(released, evidence, opened), _FORGED) is None:
        checks.skip(_COVERED)
    else:
        checks.run(_COVERED, lambda: _covered(path, released, evidence, opened), _UNCOVERED)
    stated = checks.run("statement", lambda: _statement(folder, released, evidence, opened, of_sums.pool), _FORGED)
    if stated is None:
        checks.skip("student", "pages")
        return
    student = checks.run("student", lambda: _student(path, released, pool, of_sums.scores), _FORGED)
    if student is None:
        checks.skip("pages")
        return
    if released.study.votes.rows_again:
        name, given = "second sum" if released.study.votes.residuals else "judges", (student, of_sums.queries, pool)
        checks.run(name, lambda: _again(path, released, evidence, opened, *given), _FORGED)

    def made() -> tuple[bool, str, str]:
        try:
            again = contents(
                released,
                evidence,
                stated,
                student or None,
                queries=of_sums.queries,
                signatures=read_signatures(path) if guarded_by else None,
                coordinator=folder.coordinator.certificate,
                authority=folder.authority,
            )
            files = {*again, *student.get("files", ())}
        except (LookupError, TypeError, AttributeError, ValueError, TemplateError) as error:
            raise DataCorrupt(f"no page can be made of the statement: {error!r:.200}") from None
        return _pages(path, again, files, str(stated["software"]))

    checks.run("pages", made, _FORGED)


def _authority(folder: Path, given: Path | None) -> tuple[x509.Certificate, str, str]:
    path = given or folder / AUTHORITY_FILE
    try:
        pem = read_bytes(path, most=PEM_BYTES)
    except DataUnavailable as error:
        raise DataCorrupt(f"{path} cannot be read: {error}") from None
    certificate = certificate_from_pem(pem)
    # The certificate must be a self-signed authority's, with the right kind of key.
    identify(certificate, authority=certificate, now=certificate.not_valid_before_utc, role="authority")
    mark = in_both_forms(fingerprint(certificate.public_key()))  # type: ignore[arg-type]  # identify() let only P-256 through
    if given is None:
        said = f"taken from the folder itself, so anybody could have signed it; its fingerprint is {mark}"
        return certificate, said, _GIVE_AUTHORITY
    return certificate, f"given: {mark}", ""


def _signature(folder: Path, authority: x509.Certificate, now: datetime.datetime) -> tuple[Identity, str, str]:
    coordinator = signer(folder, authority)
    _, created, _ = read_manifest(folder)
    if created > now + _CLOCK_SKEW:
        raise DataCorrupt(f"it was signed at {created}, but it is now {now}: check the clocks")
    if created > authority.not_valid_after_utc:
        raise DataCorrupt(f"it was signed at {created}, after the authority ended on {authority.not_valid_after_utc}")
    return (
        coordinator,
        f"signed by the coordinator {coordinator.name!r} at {created.isoformat()}; key "
        f"{in_both_forms(coordinator.fingerprint)}",
        "",
    )


def _files(folder: Path) -> tuple[bool, str, str]:
    check_files(folder)
    return True, f"{counted(len(read_manifest(folder)[2]), 'file')}, none changed, none added, none missing", ""


def _model_signature(folder: Path, authority: x509.Certificate) -> tuple[str, str, str]:
    name, covered = check_model_signature(folder, signer(folder, authority))
    said = f"the same coordinator signed these {counted(covered, 'file')} for stock tools (OpenSSF Model Signing)"
    return name, said, ""


def _released(folder: _Folder) -> tuple[ReleasedStudy, str, str]:
    released = read_released(folder.path)
    study = released.study
    if read_manifest(folder.path)[0] != study.digest.hex():
        raise DataCorrupt("the manifest names another study than study.toml")
    if folder.model_name not in (None, study.name):
        name = str(folder.model_name)[:80]
        raise DataCorrupt(f"model.sig is of the model {name!r}; allowed: {study.name!r}, the study")
    told = "soft label" if study.votes.once else "label"
    labels = int((released.told >= 0).sum()) - int((released.reinforced >= 0).sum())
    return released, f"study {study.digest.hex()[:16]}; {counted(labels, told)} released", ""


@dataclass(frozen=True, eq=False)
class _OfSums:
    """What records voted with; and where they could be made again, the scores that the released sums give, and what
    they say of the pool."""

    queries: Blocks | None = None
    scores: Student | None = None
    pool: Mapping[str, Any] | None = None


def _made_of_sums(
    checks: _Checks, path: Path, released: ReleasedStudy, evidence: ReleaseEvidence, pool: _Pool | None
) -> _OfSums:
    """Checks the queries, and that the soft labels follow from the sums."""
    paid = (evidence.charges[0].settled or {}) if evidence.charges else {}
    queries = checks.run("queries", lambda: _queries(path, released), _FORGED)
    if not released.study.votes.pool:  # `pages` makes the table of a count again
        return _OfSums(queries)
    if queries is None:
        checks.skip(_SOFT)
        return _OfSums()
    made = checks.run(_SOFT, lambda: _soft_labels(released, queries, pool, paid), _FORGED)
    if made is None or made.each[0].scores is None or pool is None:
        return _OfSums(queries)
    scores = scores_student(queries, made, released.study.findings, pool)
    return _OfSums(queries, scores, pool_facts(made.compared, pool))


_Pool = Float32[ndarray, "queries ..."]
# Nothing is made of labels but a student.
_OF_VOTES: dict[type[Votes], Callable[[_Checks, Path, ReleasedStudy, ReleaseEvidence, _Pool | None], _OfSums]] = {
    TeacherVotes: lambda *of_release: _OfSums(),
    UnitSums: _made_of_sums,
}


def _pool(file: Path, study: DeployedStudy) -> tuple[Float32[ndarray, "queries ..."], str, str]:
    values = read_pool(file, features=study.terms.features)
    check_pool(values, study)
    return values, "the pool that was given is the study's", ""


def _queries(folder: Path, released: ReleasedStudy) -> tuple[Blocks, str, str]:
    study = released.study
    return blocks_of(study, folder / QUERIES_FILE if study.votes.given else None), "the queries are the study's", ""


def _guardian(folder: Path, released: ReleasedStudy, evidence: ReleaseEvidence) -> tuple[bool, str, str]:
    """Raises DataCorrupt, and Refused("other_labels" or "other_sums"), unless the guardian signed all of it."""
    study = released.study
    signed = read_signed(folder, study, released.labels)
    assert signed is not None
    shown = [
        charge.number
        for charge in evidence.charges
        if signed.check(charge.number, request=bytes.fromhex(charge.request), queries=charge.queries)
    ]
    others = sorted(set(signed.signatures) - set(shown))
    if others:
        raise DataCorrupt(f"{SIGNATURES_FILE} names batches of which nothing is released: {others[:5]}")
    name, what = study.confidentiality.second_server, "labels" if signed.cells is None else "sums"
    said = f"{name!r} computed the same {what} of {counted(len(shown), 'batch')}, and signed them"
    return True, said, ""


def _soft_labels(
    released: ReleasedStudy, queries: Blocks, pool: Float32[ndarray, "queries ..."] | None, charged: Mapping[str, int]
) -> tuple[SoftLabels | None, str, str]:
    """Whether the soft labels are what the released sums give."""
    study, given, cells, soft = released.study, released.pool, released.cells, None
    if cells is None or given is None:
        return None, "no sums are released, and nothing is made of them", ""
    said = f"the soft labels of {len(given.members)} public records follow from the sums"
    left = _GIVE_POOL if pool is None else ""
    if pool is not None and find_spec("sklearn") is None:
        pool, left = None, f"install scikit-learn: {install('verify')}"
    if pool is None:
        made = labels_again(study, cells, queries, given.members, charged=charged)
        said += f", if these lie in the queries that {SOFT_LABELS_FILE} names: that was not checked"
        if made is None:
            return None, "they follow from the pool too, so they were not made again", left
    else:
        again = None if released.residuals is None else released.residuals.again
        soft = soft_labels_of_study(study, cells, queries, pool, charged=charged, again=again)
        if not np.array_equal(members_of(queries, pool), given.members):
            raise DataCorrupt(f"{SOFT_LABELS_FILE} names other queries than those in which the pool's records lie")
        made = soft.probabilities
    worst = float(np.abs(made - given.probabilities).max())
    if not worst <= _SAME_CHANCE:
        raise DataCorrupt(f"a soft label differs by {worst:.3g} from what the sums give; allowed: {_SAME_CHANCE:g}")
    return soft, said, left


def _evidence(folder: Path) -> tuple[ReleaseEvidence, str, str]:
    evidence = evidence_in(folder)
    return evidence, f"{counted(len(evidence.entries), 'entry')}, each chained to the one before", ""


def _frames(evidence: ReleaseEvidence, authority: x509.Certificate) -> tuple[list[Receipt], str, str]:
    opened = receipts(evidence, authority=authority)
    said = f"{2 * len(opened)} signatures are valid, as was each certificate when it signed; no frame carries votes"
    return opened, said, ""


def _charges(released: ReleasedStudy, evidence: ReleaseEvidence) -> tuple[bool, str, str]:
    check_charges(released.study, released.labels, evidence)
    batches, seats = counted(len(evidence.charges), "batch"), counted(len(evidence.caps), "seat")
    said = f"the charges of {batches} to {seats} add up; no cap is passed"
    said += "" if released.study.budgets.settles else "; what was answered changes no charge"
    for number in sorted(evidence.given_up):
        charge = evidence.charges[number]
        queries = counted(len(charge.queries), "query")
        said += f"; batch {number} was given up: {queries} without labels, charged as reserved"
    return True, said, ""


def _receipts(released: ReleasedStudy, evidence: ReleaseEvidence, opened: list[Receipt]) -> tuple[bool, str, str]:
    study = released.study
    check_receipts(study, released.labels, evidence, opened)
    stand = charges_by_seat(study, evidence, opened)
    unit = study.budgets.unit
    differ = {seat: Amount(each["difference"], unit) for seat, each in stand.items() if each["difference"]}
    missing = {seat: each["receipts_missing"] for seat, each in stand.items() if each["receipts_missing"]}
    said = f"{len(confirmed(study, evidence, opened))} receipts agree with the labels and the ledger"
    if differ:
        said += f"; parties' ledgers that are higher: {differ}"
    if missing:
        said += f"; missing receipts: {missing}; those parties can compare with their own node"
    refused = refused_receipts(study, evidence, opened)
    for seat, batches in refused.items():
        said += "".join(f"; refused: the receipt of {seat} for batch {batch}: {why}" for batch, why in batches.items())
    return True, said, _REFUSED if refused else ""


def _covered(
    folder: Path, released: ReleasedStudy, evidence: ReleaseEvidence, opened: list[Receipt]
) -> tuple[bool, str, str]:
    unproven = facts_of(released, evidence, opened, (), read_object(folder / STATEMENT_FILE)).stated["unproven"]
    found = check_covered(released.study, evidence, opened, unproven=unproven)
    if not found:
        return True, "no seat has a charge without a receipt that its party signed then or later", ""
    stated = {seat: numbers for seat, numbers in found.items() if seat in unproven}
    refused = {seat: numbers for seat, numbers in found.items() if seat not in stated}
    said = "all except those that the coordinator states as unproven: " + charges_in_words(stated) if stated else ""
    if refused:
        said += f"{'; ' if said else 'all '}except those whose receipt was refused: {charges_in_words(refused)}"
    return True, said, _UNCOVERED


def _statement(
    folder: _Folder,
    released: ReleasedStudy,
    evidence: ReleaseEvidence,
    opened: list[Receipt],
    of_pool: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], str, str]:
    """of_pool: what the sums say of the pool, None where that was not made again."""
    stated = read_object(folder.path / STATEMENT_FILE)
    earlier = read_earlier(folder.path, folder.authority)
    facts = facts_of(released, evidence, opened, earlier, stated)
    if of_pool is not None and not _same_pool(of_pool, facts.stated["pool"]):
        raise DataCorrupt(f"of the pool the sums say {of_pool}; the statement says otherwise")
    made = statement(facts)
    differing = list(_differences(stated, made, "statement"))
    other = next((each for each in differing if each.figure), None)
    if other is not None:
        raise DataCorrupt(f"a figure does not recompute: {other.what}")
    if differing and stated["software"] == installed_version():
        raise DataCorrupt(f"it is worded otherwise than its version words it: {differing[0].what}")
    created = read_manifest(folder.path)[1]
    if stated["created"] != created.isoformat():
        raise DataCorrupt("the statement and the manifest give different times")
    if evidence.entries and created + _CLOCK_SKEW < time_of(evidence.entries[-1]):
        raise DataCorrupt(f"the release is dated {created}, before the last entry of the coordinator's log")
    said = f"all figures recompute; {_named(stated)}"
    if differing:
        return stated, f"{said}; not its words in {len(differing)} places", _OTHER_VERSION.format(stated["software"])
    return stated, said, ""


def _same_pool(made: Mapping[str, Any], given: Mapping[str, Any] | None) -> bool:
    """Whether two facts of a pool differ by no more than rounding of rounded figures."""
    if given is None or len(made["differs"]) != len(given["differs"]):
        return False
    one, other = (np.array([each["p_value"], *np.ravel(each["differs"])]) for each in (made, given))
    return bool(np.allclose(one, other, rtol=_ROUNDED, atol=1e-300))


def _named(stated: Mapping[str, Any]) -> str:
    """Which earlier releases a statement names."""
    names = [str(each["name"]) for each in stated["earlier_releases"]["releases"]]
    return f"together with the earlier releases {', '.join(names)}" if names else "it names no earlier release"


def _student(
    folder: Path, released: ReleasedStudy, pool: Float32[ndarray, "queries ..."] | None, scores: Student | None
) -> tuple[dict[str, Any], str, str]:
    """The student's figures, {} for a release without one. scores: those of the sums, None where not made again."""
    figures = student_figures(folder)
    if figures is None:
        return {}, "no student is released", ""
    from coordinator.release.export import check_student  # slow to import

    left = check_student(folder, released, figures, pool, scores)
    how = "it is what the sums give" if figures["kind"] == SCORES else "how it was trained is the coordinator's word"
    said = f"{' and '.join(figures['files'])} are those of its figures; {how}"
    return figures, said, "" if not left else f"not checked: {left}" + ("" if pool is not None else f"; {_GIVE_POOL}")


def _again(
    folder: Path, released: ReleasedStudy, evidence: ReleaseEvidence, opened: list[Receipt], student: Mapping[str, Any],
    queries: Blocks | None, pool: _Pool | None,
) -> tuple[bool, str, str]:  # fmt: skip
    told = {each.seat: guardian_counted(released.study, each, each.seat) for each in opened if each.number == AGAIN}
    if released.study.votes.residuals:
        said, whole = check_residuals(released.study, released.residuals, evidence, told, released.cells, queries, pool)
    else:
        said, whole = check_judges(folder, released.study, released.evaluation, evidence, told, student, pool)
    return True, said, "" if whole else _GIVE_POOL


def _pages(folder: Path, made: Mapping[str, bytes], files: set[str], software: str) -> tuple[bool, str, str]:
    """Whether the folder holds what was made again, and nothing else: to the byte, or in another version, each figure.

    files: the names of all files but those of earlier releases; software: the version that made the release.
    """
    kept = [each.name for each in (folder / layout.EARLIER_FOLDER).glob("*")]
    known = files | {f"{layout.EARLIER_FOLDER}/{each}/{name}" for each in kept for name in layout.EARLIER_FILES}
    if (found := set(files_in(folder))) != known:
        raise DataCorrupt(f"a release has no {sorted(found - known)[:5]}, or lacks {sorted(known - found)[:5]}")
    if sorted(kept) != [f"{position:03}" for position in range(1, len(kept) + 1)]:
        raise DataCorrupt(f"{layout.EARLIER_FOLDER} holds {sorted(kept)[:5]}; allowed: 001, 002, ...")
    reworded = []
    for name, content in made.items():
        given = read_bytes(folder / name, most=max(JSON_BYTES, len(content)))
        if given == content:
            continue
        if name not in layout.WORDED or software == installed_version():
            raise DataCorrupt(f"{name} does not say what the statement, the labels and the evidence say")
        if _figures(given) != _figures(content):
            raise DataCorrupt(
                f"{name} has other figures than the statement. Conclave {software} may show more than this version: "
                "verify with that one"
            )
        reworded.append(name)
    said = f"{counted(len(made), 'file')} made again from the statement, the labels and the evidence"
    if reworded:
        said += f": the figures are the same, but not the words of {', '.join(reworded)}"
        return True, said, _OTHER_VERSION.format(software)
    return True, f"{said}, byte for byte", ""


def _figures(page: bytes) -> list[str]:
    """The numbers that a page shows, in their order, whatever stands around them."""
    try:
        text = page.decode()
    except UnicodeDecodeError:
        raise DataCorrupt("a page is not UTF-8") from None
    shown = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    shown = re.sub(r'<(?:[^>]*?aria-label="([^"]*)")?[^>]*>', r" \1 ", shown)
    return re.findall(r"\d(?:[\d.,]*\d)?(?:e[+-]?\d+)?", unicodedata.normalize("NFKC", html.unescape(shown)))


class _Difference(NamedTuple):
    """A place where two statements differ. figure: whether in more than the words of a sentence."""

    what: str
    figure: bool


def _differences(stated: object, made: object, where: str) -> Iterator[_Difference]:
    """The places where two statements differ by more than rounding."""
    part = where.split(".")[1] if "." in where else ""
    pairs: list[tuple[object, object, str]] = []
    if isinstance(stated, dict) and isinstance(made, dict):
        if stated.keys() == made.keys():
            pairs = [(stated[key], made[key], f"{where}.{key}") for key in made]
        else:
            what = f"{where} has the keys {sorted(stated)}, not {sorted(made)}"
            yield _Difference(what, not _same(stated, made, part))
    elif isinstance(stated, list) and isinstance(made, list):
        if len(stated) == len(made):
            pairs = [(one, other, f"{where}[{at}]") for at, (one, other) in enumerate(zip(stated, made, strict=True))]
        else:
            yield _Difference(f"{where} has {len(stated)} items, not {len(made)}", not _same(stated, made, part))
    elif isinstance(stated, float) and isinstance(made, float):
        if not math.isclose(stated, made, rel_tol=_RELATIVE):
            yield _Difference(f"{where} is {stated}, not {made}", True)
    elif type(stated) is not type(made) or stated != made:
        prose = isinstance(stated, str) and isinstance(made, str) and " " in stated and " " in made
        yield _Difference(f"{where} is {stated!r:.80}, not {made!r:.80}", not (prose and _same(stated, made)))
    for one, other, place in pairs:
        yield from _differences(one, other, place)


def _same(stated: object, made: object, part: str = _IN_WORDS[0]) -> bool:
    """Whether two texts, or two parts of a statement that are words alone, show the same figures."""
    one, other = (json.dumps(each, ensure_ascii=False).encode() for each in (stated, made))
    return part.partition("[")[0] in _IN_WORDS and _figures(one) == _figures(other)
