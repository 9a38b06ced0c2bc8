"""Verifying a release: signature, hashes, log, receipts, charges and figures, by anyone who has the folder.

Verification cannot show that noise was added, that all earlier releases are listed, or that votes were counted as they
came; in a study with a guardian it shows that the guardian computed the same labels or sums. One altered byte in what
it does cover makes a check fail.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar  # Any: parsed JSON

import numpy as np
from cryptography import x509

from coordinator.labelling.pool import check_pool, read_pool
from coordinator.labelling.pool_labels import labels_again, labels_of_pool
from coordinator.release import folder as layout
from coordinator.release.charges import charges_by_seat, check_charges, check_covered, check_receipts, in_words
from coordinator.release.evidence import Receipt, ReleaseEvidence, evidence_in, receipts, time_of
from coordinator.release.folder import Released, facts_of, read_earlier, read_json, read_released, student_figures
from coordinator.release.guardian_signed import check_guardian
from coordinator.release.pages import model_card, privacy_page
from coordinator.release.refused import confirmed, refused_receipts
from coordinator.release.statement import statement
from protocols.crypto.fingerprints import in_both_forms
from protocols.crypto.identity import PEM_BYTES, certificate_from_pem, fingerprint, identify
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable
from protocols.plural import counted
from protocols.reading import JSON_BYTES, read_bytes
from protocols.release.manifest import AUTHORITY_FILE, check_files, read_manifest, signer
from protocols.release.model_signature import check_model_signature
from protocols.release.sums import QUERIES_FILE, SOFT_LABELS_FILE, read_sums
from protocols.study.levels import GuardedLevel
from protocols.study.queries_file import read_query_map
from protocols.study.query_map import QueryMap
from runtime.distribution import installed_version

_CLOCK_SKEW = datetime.timedelta(minutes=5)
# The float64 functions of another machine may differ in the last digits.
_RELATIVE = 1e-9
# Soft labels are fitted by an optimiser, which may stop a little earlier on another machine.
_SAME_CHANCE = 1e-3
_T = TypeVar("_T")


@dataclass(frozen=True)
class Check:
    """One check: its name, whether it passed, what was found, and what to do next ("" if nothing).

    passed: None where it was not made in full, as it needs the pool.
    """

    name: str
    passed: bool | None
    message: str
    next_step: str


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
_GIVE_POOL = "give --pool FILE, the study's public pool, to make all soft labels again"


class _Checks:
    """Runs checks in order; one that needs the result of a failed check is not run, and counts as failed."""

    def __init__(self) -> None:
        self.done: list[Check] = []

    def run(self, name: str, look: Callable[[], tuple[_T, str]], next_step: str) -> _T | None:
        try:
            found, message = look()
        except (ConclaveError, OSError, RecursionError) as error:  # a file may be nested too deeply
            self.done.append(Check(name, False, str(error), next_step))
            return None
        self.done.append(Check(name, True, message, ""))
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
    signed = checks.run("signature", lambda: _signature(folder, trusted, today), _ASK_AGAIN)
    whole = checks.run("files", lambda: _files(folder), _ASK_AGAIN)
    checks.run("model signature", lambda: _model_signature(folder, trusted), _ASK_AGAIN)
    if signed is None or whole is None:
        checks.skip(*_CONTENT)
        return checks.done
    _check_content(checks, folder, trusted, pool)
    return checks.done


AUTHORITY: Final = "authority"
_COVERED, _SOFT = "receipts cover every charge", "soft labels"
_CONTENT = ("study and labels", "audit log", "signed frames", "charges", "receipts", _COVERED, "statement", "pages")


def _check_content(checks: _Checks, folder: Path, authority: x509.Certificate, pool: Path | None) -> None:
    """Checks what the signed files say; each check builds on the earlier ones."""
    released = checks.run("study and labels", lambda: _released(folder), _FORGED)
    evidence = checks.run("audit log", lambda: _evidence(folder), _FORGED)
    if released is None or evidence is None:
        checks.skip(*_CONTENT[2:])
        return
    if released.study.records is not None:
        paid = (evidence.charges[0].settled or {}) if evidence.charges else {}
        queries = checks.run("queries", lambda: _queries(folder, released), _FORGED)
        if queries is None:
            checks.skip(_SOFT)
        elif checks.run(_SOFT, lambda: _soft_labels(folder, released, queries, pool, paid), _FORGED) is False:
            checks.done[-1] = replace(checks.done[-1], passed=None, next_step=_GIVE_POOL)
    if isinstance(released.study.confidentiality, GuardedLevel):
        checks.run("guardian's signatures", lambda: check_guardian(folder, released, evidence), _FORGED)
    opened = checks.run("signed frames", lambda: _frames(evidence, authority), _FORGED)
    charged = checks.run("charges", lambda: _charges(released, evidence), _FORGED)
    if opened is None or charged is None:
        checks.skip(*_CONTENT[4:])
        return

    def look_at_receipts() -> tuple[dict[str, dict[int, str]], str]:
        check_receipts(released.study, released.labels, evidence, opened)
        stand = charges_by_seat(released.study, evidence, opened)
        differ = {seat: each["difference_nano"] for seat, each in stand.items() if each["difference_nano"]}
        missing = {seat: each["receipts_missing"] for seat, each in stand.items() if each["receipts_missing"]}
        fine = len(confirmed(released.study, evidence, opened))
        said = f"{fine} receipts agree with the labels and the ledger"
        if differ:
            said += f"; parties' ledgers that are higher, in units of account: {differ}"
        if missing:
            said += f"; missing receipts: {missing}; those parties can compare with their own node"
        refused = refused_receipts(released.study, evidence, opened)
        for seat, batches in refused.items():
            said += "".join(
                f"; refused: the receipt of {seat} for batch {batch}: {why}" for batch, why in batches.items()
            )
        return refused, said

    refused = checks.run("receipts", look_at_receipts, _FORGED)
    if refused:
        checks.done[-1] = replace(checks.done[-1], next_step=_REFUSED)
    if refused is None:
        checks.skip(_COVERED)
    elif checks.run(_COVERED, lambda: _covered(folder, released, evidence, opened), _UNCOVERED):
        checks.done[-1] = replace(checks.done[-1], next_step=_UNCOVERED)

    def look_at_statement() -> tuple[dict[str, Any], str]:
        stated = read_json(folder / layout.STATEMENT_FILE)
        earlier = read_earlier(folder, authority)
        made = statement(facts_of(released, evidence, opened, earlier, stated))
        difference = _difference(stated, made, "statement")
        if difference:
            raise DataCorrupt(f"a figure does not recompute: {difference}")
        created = read_manifest(folder)[1]
        if stated["created"] != created.isoformat():
            raise DataCorrupt("the statement and the manifest give different times")
        if evidence.entries and created + _CLOCK_SKEW < time_of(evidence.entries[-1]):
            raise DataCorrupt(f"the release is dated {created}, before the last entry of the coordinator's log")
        return stated, f"all figures recompute; {len(earlier)} earlier releases"

    stated = checks.run("statement", look_at_statement, _FORGED)
    if stated is None:
        checks.skip("pages")
        return
    checks.run("pages", lambda: _pages(folder, released, stated), _FORGED)


def _authority(folder: Path, given: Path | None) -> tuple[x509.Certificate, str]:
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
        return certificate, f"taken from the folder itself, so anybody could have signed it; its fingerprint is {mark}"
    return certificate, f"given: {mark}"


def _signature(folder: Path, authority: x509.Certificate, now: datetime.datetime) -> tuple[bool, str]:
    coordinator = signer(folder, authority)
    _, created, _ = read_manifest(folder)
    if created > now + _CLOCK_SKEW:
        raise DataCorrupt(f"it was signed at {created}, but it is now {now}: check the clocks")
    if created > authority.not_valid_after_utc:
        raise DataCorrupt(f"it was signed at {created}, after the authority ended on {authority.not_valid_after_utc}")
    return (
        True,
        f"signed by the coordinator {coordinator.name!r} at {created.isoformat()}; key "
        f"{in_both_forms(coordinator.fingerprint)}",
    )


def _files(folder: Path) -> tuple[bool, str]:
    check_files(folder)
    return True, f"{counted(len(read_manifest(folder)[2]), 'file')}, none changed, none added, none missing"


def _model_signature(folder: Path, authority: x509.Certificate) -> tuple[bool, str]:
    covered = check_model_signature(folder, signer(folder, authority))
    return True, f"the same coordinator signed these {counted(covered, 'file')} for stock tools (OpenSSF Model Signing)"


def _released(folder: Path) -> tuple[Released, str]:
    released = read_released(folder)
    if read_manifest(folder)[0] != released.study.digest.hex():
        raise DataCorrupt("the manifest names another study than study.toml")
    return released, f"study {released.study.digest.hex()[:16]}; {counted(sum(released.counts), 'label')} released"


def _queries(folder: Path, released: Released) -> tuple[QueryMap, str]:
    return read_query_map(folder / QUERIES_FILE, released.study), "the queries are the study's"


def _soft_labels(
    folder: Path, released: Released, queries: QueryMap, pool: Path | None, charged: Mapping[str, int]
) -> tuple[bool, str]:
    """Whether the soft labels are what the released sums give: whether all of that was checked, and what was found."""
    study, given, cells = released.study, released.pool, read_sums(folder, released.study)
    if cells is None or given is None:
        return True, "no sums are released, and nothing is made of them"
    said = f"the soft labels of {len(given.members)} public records follow from the sums"
    if pool is None:
        made = labels_again(study, cells, queries, given.members, charged=charged)
        said += f", if these lie in the queries that {SOFT_LABELS_FILE} names: that was not checked"
        if made is None:
            return False, "they follow from the pool too, so they were not made again"
    else:
        values = read_pool(pool, features=study.terms.features)
        check_pool(values, study)
        found = labels_of_pool(study, cells, queries, values, charged=charged)
        if not np.array_equal(found.members, given.members):
            raise DataCorrupt(f"{SOFT_LABELS_FILE} names other queries than those in which the pool's records lie")
        made, said = found.probabilities, f"{said}; the pool is the study's"
    worst = float(np.abs(made - given.probabilities).max())
    if worst > _SAME_CHANCE:
        raise DataCorrupt(f"a soft label differs by {worst:.3g} from what the sums give; allowed: {_SAME_CHANCE:g}")
    return pool is not None, said


def _evidence(folder: Path) -> tuple[ReleaseEvidence, str]:
    evidence = evidence_in(folder)
    return evidence, f"{counted(len(evidence.entries), 'entry')}, each chained to the one before"


def _frames(evidence: ReleaseEvidence, authority: x509.Certificate) -> tuple[list[Any], str]:
    opened = receipts(evidence, authority=authority)
    return (
        opened,
        f"{2 * len(opened)} signatures are valid, as was each certificate when it signed; no frame carries votes",
    )


def _charges(released: Released, evidence: ReleaseEvidence) -> tuple[bool, str]:
    check_charges(released.study, released.labels, evidence)
    batches, seats = counted(len(evidence.charges), "batch"), counted(len(evidence.caps), "seat")
    said = f"the charges of {batches} to {seats} add up; no cap is passed"
    said += "" if released.study.budgets.settles else "; what was answered changes no charge"
    for number in sorted(evidence.given_up):
        charge = evidence.charges[number]
        queries = counted(len(charge.queries), "query")
        said += f"; batch {number} was given up: {queries} without labels, charged as reserved"
    return True, said


def _covered(
    folder: Path, released: Released, evidence: ReleaseEvidence, opened: list[Receipt]
) -> tuple[dict[str, list[int]], str]:
    facts = facts_of(released, evidence, opened, (), read_json(folder / layout.STATEMENT_FILE))
    found = check_covered(released.study, evidence, opened, unproven=facts.stated["unproven"])
    if not found:
        return found, "no seat has a charge without a receipt that its party signed then or later"
    stated = {seat: numbers for seat, numbers in found.items() if seat in facts.stated["unproven"]}
    refused = {seat: numbers for seat, numbers in found.items() if seat not in stated}
    said = "all except those that the coordinator states as unproven: " + in_words(stated) if stated else ""
    if refused:
        said += f"{'; ' if said else 'all '}except those whose receipt was refused: {in_words(refused)}"
    return found, said


def _pages(folder: Path, released: Released, stated: dict[str, Any]) -> tuple[bool, str]:
    if stated["software"] != installed_version():
        return (
            True,
            f"made by version {stated['software']}, which words them differently: only their hashes were checked",
        )
    pages = {
        layout.PRIVACY_FILE: privacy_page(stated),
        layout.CARD_FILE: model_card(stated, student_figures(folder), released.counts),
    }
    for name, text in pages.items():
        if read_bytes(folder / name, most=JSON_BYTES) != text.encode():
            raise DataCorrupt(f"{name} does not say what the statement says")
    return True, f"{' and '.join(pages)} say what the statement says"


def _difference(stated: object, made: object, where: str) -> str | None:
    """The first place where two statements differ by more than rounding, and how; None if they do not."""
    if isinstance(stated, dict) and isinstance(made, dict):
        if stated.keys() != made.keys():
            return f"{where} has the keys {sorted(stated)}, not {sorted(made)}"
        pairs = [(stated[key], made[key], f"{where}.{key}") for key in made]
    elif isinstance(stated, list) and isinstance(made, list):
        if len(stated) != len(made):
            return f"{where} has {len(stated)} items, not {len(made)}"
        pairs = [(one, other, f"{where}[{at}]") for at, (one, other) in enumerate(zip(stated, made, strict=True))]
    elif isinstance(stated, float) and isinstance(made, float):
        return None if math.isclose(stated, made, rel_tol=_RELATIVE) else f"{where} is {stated}, not {made}"
    else:
        return None if type(stated) is type(made) and stated == made else f"{where} is {stated!r:.80}, not {made!r:.80}"
    return next((found for each in pairs if (found := _difference(*each))), None)
