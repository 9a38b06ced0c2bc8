"""What a privacy statement says about its evidence; protocols/claims.py has the rest."""

from __future__ import annotations

VERIFY = (
    "Run `conclave-coordinator verify FOLDER --authority authority.pem`, with the authority's certificate that the "
    "node of your own hospital holds since it enrolled, or that the operator gave you apart from the folder; not the "
    "copy in the folder. It needs no account and no network.",
    "It checks the signature and every file's hash, the chain of the coordinator's audit log, every outcome that was "
    "sent and every receipt that a party signed, that both agree with the released labels, that receipts cover every "
    "charge except those stated as unproven or whose last receipt was refused, that each charge recomputes from "
    "the study, that no cap was passed, and that the figures here recompute. In a study with a guardian it checks that "
    "the guardian signed these very labels, or noisy sums, batch by batch. Where records vote, it needs the public "
    "pool, `--pool FILE`, to check that the soft labels follow from the released sums. It does not know which "
    "certificates were revoked.",
    "Each hospital can compare with its own node: `conclave-party budget show` and `conclave-party verify`.",
)


def receipt_refused(seat: str, batch: int, *, confirmed: bool) -> str:
    """In words: what a refused receipt means. confirmed: whether a later receipt of the seat covers its charges."""
    after = "a later receipt confirms its ledger" if confirmed else "its ledger's state is not confirmed"
    return f"the receipt of {seat} for batch {batch} was refused, so it proves nothing; {after}"
