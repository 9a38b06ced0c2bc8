"""What every epsilon of `ask` means, in words: who is protected against whom, and what no epsilon covers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from protocols.claims import (
    ANY_VOTES,
    ONE_SERVER,
    OWN_RECORDS,
    OWN_TRAINING,
    SEVERAL,
    SEVERAL_COST,
    Protection,
    guardian_sees,
    not_protected_from,
)
from protocols.study.protection import protection_of
from protocols.study.study import ADJACENCY, Study


@dataclass(frozen=True)
class Statement:
    """Who is protected against whom, and by what; epsilon and delta are None where cryptography, or nothing,
    protects.
    """

    protected: str
    against: str
    epsilon: float | None
    delta: float | None
    words: str


def statements(study: Study, *, queriers: int) -> list[Statement]:
    """Every statement of a run; those about differential privacy give the largest cap, at the largest delta."""
    guaranteed = study.budgets.epsilon_guaranteed
    epsilon, delta = float(guaranteed.max()), max(seat.delta for seat in study.roster)
    one = "one record of an answering party" if study.unit == "record" else "all data of an answering party"
    everyone = "the querying party" if queriers == 1 else f"all {queriers} querying parties together, colluding"
    cap = (
        "The cap of its own party: one ledger per party holds every query of every querying party, and stops before "
        f"the cap. Worst case, label only; adjacency {ADJACENCY}. Each party's own cap is in parties.csv; this is "
        "the largest."
    )
    return [
        Statement(
            one, f"{everyone}, and anyone who gets the labels or their models from them: they see labels and which "
            "queries were refused", epsilon, delta, cap,
        ),
        Statement(
            one, "other answering parties that collude with them and show them their own votes", epsilon, delta,
            ANY_VOTES,
        ),
        Statement(
            one, "one of the two servers (a querying party, or the guardian), even if it subtracts its own noise",
            epsilon, delta, f"{ONE_SERVER} Not protected against: {not_protected_from(protection_in_ask(study))}",
        ),
        Statement(
            "a person known to several answering parties", "anybody", None, None, f"{SEVERAL} {SEVERAL_COST}",
        ),
        Statement(
            "a querying party's unlabelled records, and the answering parties' models", "each other and the guardian",
            None, None, f"{OWN_RECORDS} The guardian sees {guardian_sees(protection_in_ask(study))}.",
        ),
        Statement(
            "a querying party's own labelled records", "whoever gets its retrained model", None, None, OWN_TRAINING,
        ),
    ]  # fmt: skip


def protection_in_ask(study: Study) -> Protection:
    """What sentences about such a run depend on: a querying party takes the coordinator's place."""
    return replace(protection_of(study), level="hidden_queries", asks="the querying party")


def rule_words(study: Study, *, queriers: int) -> str:
    """The public rule by which querying parties share what the budgets afford."""
    whose = "the querying party asks" if queriers == 1 else f"each of the {queriers} querying parties, in turn, asks"
    ends = (
        "The first party whose cap does not fit a whole round ends the study"
        if study.stop == "first-exhausted"
        else "A party whose cap does not fit a whole round stops answering, and the others go on"
    )
    refused = (
        "What refused queries save pays for further rounds"
        if study.budgets.settles
        else "Refused queries cost as much as answered ones"
    )
    return (
        f"In every round {whose} the same number of queries, {study.batch_limit} at most, fewer if the worst case "
        f"of the whole round would not fit a cap. {ends}. {refused}. A querying party does not answer itself. Sizes of "
        "rounds depend on public ledgers only."
    )
