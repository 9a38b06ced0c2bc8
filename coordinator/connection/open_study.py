"""A study whose seats may be asked over the hub, and the check of a node's state against it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from coordinator.connection.receipts import Answered
from protocols.crypto.identity import Identity
from protocols.errors import InvalidInput, Refused
from protocols.ledger.ledger import Ledger
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.study import party_of
from protocols.wire.frames import RefusedSeat, SeatHeads, head_statement
from protocols.wire.messages import Outcome, Reply

# outcome_for(seat, digest of a request): the outcome that a party still waits for; see Coordinator.outcome_for.
OutcomeFor = Callable[[str, bytes], Outcome | None]
# on_told(seat, outcome, the frames, its reply): called when a seat was told an outcome that it had missed.
OnTold = Callable[[str, Outcome, Answered, Reply | None], None]


@dataclass(eq=False)
class OpenStudy:
    """A study whose seats may be asked, with the coordinator's ledger of it.

    fault: set when nobody may be asked any more, because a party proves an entry that this ledger lacks.
    """

    study: DeployedStudy
    ledger: Ledger
    outcome_for: OutcomeFor | None
    on_told: OnTold | None = None
    fault: Refused | None = None

    @property
    def ended(self) -> bool:
        """Whether the study's last day is over: nodes no longer answer."""
        return self.study.terms.ended(datetime.datetime.now(datetime.UTC).date())


def check_askable(study: DeployedStudy, *, reply_bytes: int) -> None:
    """Raises InvalidInput for a study whose largest reply is above `reply_bytes`."""
    rows, columns = study.votes.shape(queries=study.batch_limit, classes=study.classes)
    largest = 8 * rows * columns + 2**16
    if largest > reply_bytes:
        raise InvalidInput(
            f"a reply to {study.batch_limit} queries, {rows} x {columns} numbers, has {largest} bytes; allowed: "
            f"{reply_bytes}, with {study.votes.smaller}"
        )


def check_all(
    studies: Mapping[bytes, OpenStudy], party: str, seats: Iterable[SeatHeads], *, own: Identity
) -> tuple[list[SeatHeads], tuple[RefusedSeat, ...]]:
    """Splits a party's seats into those that may be asked, and those refused; see check_heads."""
    served, refused = [], []
    for heads in seats:
        opened = studies.get(heads.study)
        try:
            if opened is not None:
                check_heads(opened, party, heads, own=own)
            served.append(heads)
        except Refused as error:
            refused.append(RefusedSeat(heads.study, heads.seat, error.code, str(error)[:2000]))
    return served, tuple(refused)


def check_heads(opened: OpenStudy, party: str, heads: SeatHeads, *, own: Identity) -> None:
    """Raises Refused if the seat is not this party's, or one of the two logs was rolled back. own: this coordinator's.

    A head that is not in the coordinator's log stops the study, but only with the coordinator's own signature of it:
    without, the seat is refused alone, as anybody can make up a head.
    """
    if heads.seat not in opened.study.seats or party_of(heads.seat) != party:
        raise Refused(Code.WRONG_SEAT, f"the seat {heads.seat!r} is not one of {party!r} in this study")
    log = opened.ledger.log
    try:
        log.check_known(heads.coordinator, by=heads.seat)
    except Refused as error:
        try:
            own.verify(heads.proof, head_statement(heads.study, heads.coordinator))
        except Refused:
            raise Refused(
                Code.UNPROVEN_HEAD,
                f"the seat {heads.seat!r} claims to know entry {heads.coordinator.count} of the coordinator's log, "
                "which is missing or different there, without the coordinator's signature of it",
            ) from None
        opened.fault = Refused(Code.COORDINATOR_ROLLED_BACK, f"the coordinator's ledger is not the newest: {error}")
        raise opened.fault from None
    log.check_newer(heads.seat, heads.own)
