"""Who keeps what after a study, and what a hospital that withdraws and a patient who objects can get.

See docs/explanation/threat-model.md, "Side channels, and what is kept".
"""

from __future__ import annotations

from protocols.claims.protection import Protection

BYTES = (
    "What the software deletes is deleted from a database or a folder: the file system and backups may still hold the "
    "bytes. It sets no date by which anything else is deleted."
)
_GUARDIAN = (
    "the studies that it approved, its ledger, the seeds of its noise of batches that it did not settle, and one "
    "sealing key for all studies. Whoever gets that key and a hospital's ledger has that hospital's votes."
)
_JUDGES = "in the study's folder the records of its judges until they have answered, "
_RESIDUALS = "in the study's folder its records' public features and labels until they were asked again, "


def kept(study: Protection) -> list[dict[str, str]]:
    """Each role, and what its software keeps of a study of public queries."""
    return [
        {
            "who": "each hospital",
            "keeps": (
                f"{study.said.kept}, in the ledger {study.filled(study.at.replies)}, {_JUDGES if study.judges else ''}"
                f"{_RESIDUALS if study.residuals else ''}"
                "and beside its lifetime caps keyed digests of its patients' names and of rows, by which it knows "
                "whose cap it is: pseudonymous personal data. It keeps nothing of other hospitals."
            ),
        },
        {"who": "the coordinator", "keeps": _coordinator(study)},
        *([{"who": "the guardian", "keeps": _GUARDIAN}] if study.guarded else []),
        {
            "who": "whoever holds this release",
            "keeps": "this folder. It cannot be called back: neither labels nor student can be withdrawn from those "
            "who have them.",
        },
    ]


def keys(study: Protection) -> list[str]:
    """Who holds which private keys, in sentences."""
    return [
        "The consortium's authority and the coordinator's keys are in the operator's home; only it admits and revokes.",
        "Each hospital's private key is in its own home, and never leaves it. It signs every answer.",
        *(
            ["The guardian's keys, to sign and to open its shares, are in the guardian's home."]
            if study.guarded
            else []
        ),
    ]


def _coordinator(study: Protection) -> str:
    return (
        f"{study.said.released}, the student, the public pool, its ledger, and the signed receipts of the hospitals. "
        f"{study.at.keeps}"
    )


def withdrawal(study: Protection) -> tuple[str, ...]:
    """Sentences on withdrawal, on erasing a record, and on where a patient's rights are exercised."""
    return (
        "A hospital can withdraw at any time (conclave-party withdraw): from then on it answers no query. What was "
        "released before stays released, the budget that it cost stays spent, and no copy can be called back.",
        "Erasing one patient's record at the hospital does not change labels that were released. Their guarantee "
        f"stands: it bounds what that record can have added to them.{study.said.models}",
        "The hospital keeps keyed digests of names and rows, also after it withdrew: without them, the same people "
        "could be counted under a second lifetime cap. It can erase them (conclave-party budget erase); the cap then "
        "counts as spent for good.",
        "Access, rectification and objection are exercised at the hospital that holds the record. "
        f"{study.at.custodians}",
    )
