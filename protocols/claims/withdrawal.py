"""What a hospital that withdraws, and a patient who objects, can get, and what nobody can call back."""

from __future__ import annotations

from protocols.claims.protection import Protection


def withdrawal(study: Protection) -> tuple[str, ...]:
    """Sentences on withdrawal, on erasing a record, and on where a patient's rights are exercised."""
    models = (
        ""
        if study.records
        else " Models trained at the hospital hold the record until they are deleted and trained again."
    )
    return (
        "A hospital can withdraw at any time (conclave-party withdraw): from then on it answers no question. What was "
        "released before stays released, the budget that it cost stays spent, and no copy can be called back.",
        "Erasing one patient's record at the hospital does not change labels that were released. Their guarantee "
        f"stands: it bounds what that record can have added to them.{models}",
        "The hospital keeps keyed digests of names and rows, also after it withdrew: without them, the same people "
        "could be counted under a second lifetime cap. It can erase them (conclave-party budget erase); the cap then "
        "counts as spent, for ever.",
        "Access, rectification and objection are exercised at the hospital that holds the record. "
        + (
            "Neither coordinator nor guardian holds records, and neither can find a person in what it has."
            if study.guarded
            else "The coordinator holds no records, and cannot find a person in what it has."
        ),
    )
