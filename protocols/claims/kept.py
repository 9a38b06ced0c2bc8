"""Who keeps what after a study: docs/explanation/threat-model.md, "Side channels, and what is kept"."""

from __future__ import annotations

from protocols.claims.protection import Protection

BYTES = (
    "What the software deletes is deleted from a database or a folder: the file system and backups may still hold the "
    "bytes. It sets no date by which anything else is deleted."
)


def kept(study: Protection) -> list[dict[str, str]]:
    """Each role, and what its software keeps of a study of public queries."""
    return [
        {
            "who": "each hospital",
            "keeps": (
                "its records, its settings, what it approved, its ledger with a signed log of what was asked"
                if study.records
                else "its records, the models that it trained on them until it deletes them, what it approved, its "
                "ledger with a signed log of what was asked"
            )
            + f", in the ledger {_replies(study)}, and beside its lifetime caps keyed digests of its patients' names "
            "and of rows, by which it knows whose cap it is: pseudonymous personal data. No other hospital's.",
        },
        {"who": "the coordinator", "keeps": _coordinator(study)},
        *([{"who": "the guardian", "keeps": _guardian(study)}] if study.guarded else []),
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


def _replies(study: Protection) -> str:
    whose = "its records' summed votes" if study.records else "its own votes"
    if study.level == "clear":
        return whose
    if study.level == "secure_sum":
        return f"{whose}, masked; the secrets of the masks are deleted when a batch's outcome comes"
    return f"{whose} as two shares: the coordinator's in the clear, the guardian's sealed to the guardian's key"


def _coordinator(study: Protection) -> str:
    released = "the noisy sums, the labels" if study.records else "the labels"
    always = f"{released}, the student, the public pool, its ledger, and the signed receipts of the hospitals"
    if study.level == "clear":
        return (
            f"{always}. Its software writes no hospital's votes to disk, but it sees them: that its operator keeps "
            "none rests on a contract alone."
        )
    if study.level == "secure_sum":
        return f"{always}. It deletes what belongs to a batch's masks when the batch is released."
    return f"{always}. It deletes its shares of votes and the seed of its noise when a batch is released."


def _guardian(study: Protection) -> str:
    return (
        "the studies that it approved, its ledger and the seeds of its noise, and one sealing key for all studies. "
        "Whoever gets that key and a hospital's ledger has that hospital's votes."
    )
