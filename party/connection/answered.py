"""What a node's log says of each answer that leaves: which batch, how many queries, and what is left of the budget.

Nothing here depends on a vote: a charge follows from what was asked, and from which queries the coordinator answered.
"""

from __future__ import annotations

from party.budget.spending import spending
from party.connection.seat import ServedSeat
from protocols.wire.messages import HiddenVotes, Reply, Settled, VoteReply, VoteRequest, decode


def charge_of(seat: ServedSeat, envelope: bytes, said: Reply) -> tuple[str, dict[str, str | int | float]] | None:
    """The event and its fields for a reply that was charged or settled; None for any other.

    envelope: the request. "answered": the batch is reserved as if every query were answered; "settled": the outcome is
    known, and what the queries that were not answered cost less is returned.
    """
    number: int | None = None
    if isinstance(said, VoteReply | HiddenVotes) and isinstance(request := decode(envelope), VoteRequest):
        event, number, queries = "answered", request.batch.number, len(request.batch.ids)
    elif isinstance(said, Settled) and (number := seat.ledger.number_of(said.batch_digest)) is not None:
        event, queries = "settled", len(seat.ledger.queries(number))
    if number is None:
        return None
    found = spending(seat.study, seat.party.name, seat.ledger.balance(seat.party.name).spent)
    return event, {
        "study": seat.study.name,
        "seat": seat.party.name,
        "batch": number,
        "queries": queries,
        "answers_left": found.answers_left,
        "epsilon_used": found.epsilon_used,
        "epsilon_cap": found.epsilon_cap,
    }
