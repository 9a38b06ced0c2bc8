"""The guardian's signatures in a release: written from the coordinator's ledger, and checked by anyone."""

from __future__ import annotations

from pathlib import Path

from coordinator.release.evidence import ReleaseEvidence
from coordinator.release.folder import Released
from protocols.errors import DataCorrupt
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.released import kept_signature, read_signed
from protocols.plural import counted
from protocols.release.signatures import SIGNATURES_FILE, signatures_text
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import GuardedLevel, guarded


def signature_files(study: DeployedStudy, ledger: Path, evidence: ReleaseEvidence) -> dict[str, str]:
    """The file of signatures of all batches that were released, by name; none if the study has no guardian."""
    if not isinstance(study.confidentiality, GuardedLevel):
        return {}
    with Ledger(ledger) as opened:
        found = {
            charge.number: kept_signature(opened, study, bytes.fromhex(charge.request))
            for charge in evidence.charges
            if charge.settled is not None
        }
    return {SIGNATURES_FILE: signatures_text({number: each for number, each in found.items() if each is not None})}


def check_guardian(folder: Path, released: Released, evidence: ReleaseEvidence) -> tuple[int, str]:
    """The number of batches whose labels or sums the guardian signed as they are released, and that in words.

    Raises DataCorrupt, and Refused("other_labels" or "other_sums") unless these are all that were released.
    """
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
    name, what = guarded(study.confidentiality).guardian, "sums" if study.records is not None else "labels"
    return len(shown), f"{name!r} computed the same {what} of {counted(len(shown), 'batch')}, and signed them"
