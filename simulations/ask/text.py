"""What every epsilon of `ask` means, in words: who is protected against whom, and what no epsilon covers."""

from __future__ import annotations

from dataclasses import dataclass

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
        "The cap of its own party: one ledger a party holds every query of every querying party, and stops before the "
        f"cap. Worst case, label only; adjacency {ADJACENCY}. Each party's own cap is in parties.csv; this is "
        "the largest."
    )
    return [
        Statement(
            one, f"{everyone}, and anyone who gets the labels or their models from them: they see labels and which "
            "queries were refused", epsilon, delta, cap,
        ),
        Statement(
            one, "other answering parties that collude with them and show them their own votes", epsilon, delta,
            "The same cap: the bound holds for any votes of the others, known or not.",
        ),
        Statement(
            one, "one of the two servers (a querying party, or the guardian), even if it subtracts its own noise",
            epsilon, delta,
            "The same cap, computationally: it is accounted with the noise of one server, and the votes are secret-"
            "shared. Both servers are assumed to be semi-honest. If they collude, they see the votes and no epsilon "
            "holds.",
        ),
        Statement(
            "a person known to several answering parties", "anybody", None, None,
            "No single party's epsilon covers this person: the loss must be computed anew at the sum of the weights, "
            "and grows with the square of that sum.",
        ),
        Statement(
            "a querying party's unlabelled records, and the answering parties' models", "each other and the guardian",
            None, None,
            "By private inference on secret shares, not by noise, as long as no two of querying party, answering party "
            "and guardian collude. The guardian learns which queries were refused, never a label.",
        ),
        Statement(
            "a querying party's own labelled records", "whoever gets its retrained model", None, None,
            "By nothing here: training on its own labelled records is not differentially private, and no epsilon of "
            "this run covers them.",
        ),
    ]  # fmt: skip


def rule_words(study: Study, *, queriers: int) -> str:
    """The public rule by which querying parties share what the budgets afford."""
    whose = "the querying party asks" if queriers == 1 else f"each of the {queriers} querying parties, in turn, asks"
    ends = (
        "The first party whose cap does not fit a whole round ends the study"
        if study.stop == "first-exhausted"
        else "A party whose cap does not fit a whole round stops answering, and the others go on"
    )
    return (
        f"In every round {whose} the same number of queries, {study.batch_limit} at most, fewer if the worst case "
        f"of the whole round would not fit a cap. {ends}. What refused queries save pays for further rounds. A "
        "querying party does not answer itself. Sizes of rounds depend on public ledgers only."
    )
