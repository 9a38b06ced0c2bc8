"""A study whose seats may be asked over the hub: a node's state is checked against it, and answers are stored.

Replies, heads and evidence of a round are stored in one transaction. A receipt is a party's signed statement of what
its own ledger holds. It is checked on arrival, as far as a release would check it: one that cannot be true is refused,
its sender is named in the log, and the labelling continues. A refused receipt proves nothing, and the release says so.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from protocols.crypto.identity import Identity
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.level import code_of
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.study import Study, party_of
from protocols.wire.frames import Answer, RefusedSeat, SeatHeads, head_statement
from protocols.wire.messages import (
    ConcealedVotes,
    Outcome,
    Refusal,
    Reply,
    Request,
    Settled,
    StepReply,
    VoteReply,
    decode,
)
from runtime.logs import Event, shortened

BAD_RECEIPT = Code.BAD_RECEIPT
# The entry of a coordinator's log that names a seat and a batch whose receipt was refused, once.
RECEIPT_REFUSED = "receipt_refused"
# Codes that only the coordinator uses about a seat; if a party sends one, it is replaced.
_OWN_CODES = frozenset({BAD_RECEIPT, Code.ABSENT, Code.BAD_REPLY, Code.LATE, Code.NOT_READ})


@dataclass(frozen=True)
class Answered:
    """A request and its answer, as signed. asked: empty unless the request was an outcome."""

    asked: bytes = field(repr=False)
    signed: bytes = field(repr=False)
    answer: Answer


@dataclass(frozen=True)
class Late:
    """A seat that was asked over an open stream and had not answered by the deadline."""

    deadline_s: float


def record(
    study: Study,
    ledger: Ledger,
    requests: Mapping[str, Request],
    answers: Mapping[str, Answered | Late | None],
    *,
    on_event: Event,
) -> dict[str, Reply | None]:
    """Decodes the answers, and stores heads and evidence of all of them in one transaction.

    For a late seat the result is a Refusal("late") made here; an answer to an outcome that is neither a refusal nor a
    possible receipt becomes a Refusal("bad_receipt"). A party's reason is made printable; its code becomes "refused"
    if it is not a known code, or is one that only the coordinator uses.
    """
    replies: dict[str, Reply | None] = dict.fromkeys(requests)
    log = ledger.log
    with log.together():
        charged = _Charged(ledger, requests)
        for seat, answered in answers.items():
            if answered is None:
                continue
            if isinstance(answered, Late):
                replies[seat] = Refusal(
                    Code.LATE, f"no answer yet after {answered.deadline_s:g} s, the study's deadline"
                )
                continue
            request = requests[seat]
            bad = False
            try:
                reply = _reply(answered.answer.envelope, seat, request)
                if isinstance(reply, Settled):
                    _check_receipt(study, ledger, seat, request, answered.answer, reply, charged)
                # An answer that contains votes is not stored.
                proof = answered.signed if isinstance(reply, Settled) else b""
                if not (
                    isinstance(reply, Refusal) and reply.code == Code.UNKNOWN_STUDY
                ):  # a node that answers so has no log of it
                    log.remember(seat, answered.answer.own, proof=proof)
            except MalformedMessage as error:
                reply = Refusal(Code.MALFORMED, str(error))
            except Refused as error:
                reply = Refusal(error.code, str(error))
                bad = error.code == BAD_RECEIPT
            replies[seat] = reply
            if isinstance(reply, Refusal):
                on_event("refusal", {"seat": seat, "code": reply.code, "reason": reply.reason[:500]})
                if bad and isinstance(request, Outcome):
                    _note_bad(ledger, seat, request, reply)
                else:
                    log.append("refused_by", seat=seat, code=reply.code)
            elif isinstance(request, Outcome) and isinstance(reply, Settled):
                number = charged.numbers[request.batch_digest]
                if number is not None:
                    log.keep(number, seat, "outcome", answered.asked)
                    log.keep(number, seat, "settled", answered.signed)
    return replies


def last_without_receipt(ledger: Ledger, seat: str) -> tuple[bytes, ...]:
    """The request of the newest batch that a seat paid for, if its receipt was lost; else (). One receipt covers all
    earlier batches."""
    stored = ledger.last_settled(seat)
    if stored is None or ledger.log.kept(stored.number, seat, "settled"):
        return ()
    return (stored.digest,)


class _Charged:
    """What a ledger holds while a round's receipts are checked, looked up once for all of them."""

    def __init__(self, ledger: Ledger, requests: Mapping[str, Request]) -> None:
        told = {seat: request.batch_digest for seat, request in requests.items() if isinstance(request, Outcome)}
        self._ledger = ledger
        self.numbers = {digest: ledger.number_of(digest) for digest in set(told.values())}
        self._given_up = [each for each in ledger.unsettled() if ledger.given_up(each)] if told else []
        self._balances = (
            ledger.balances("WHERE name IN (SELECT value FROM json_each(?))", json.dumps([*told])) if told else {}
        )

    def least(self, seat: str, number: int | None) -> int:
        """The least that a party's ledger can hold once it was told the outcome of a batch.

        All that was settled here counts, since a party that voted had charged itself before; of batches that were given
        up, only those that the party settled, since others may never have reached it. 0 for a relayed batch, which is
        charged in the querying party's ledger and not here.
        """
        if number is None:
            return 0
        ledger = self._ledger
        known = [each for each in self._given_up if each == number or ledger.log.kept(each, seat, "settled")]
        return self._balances[seat].settled + sum(ledger.charged(each).get(seat, 0) for each in known)


def _check_receipt(
    study: Study, ledger: Ledger, seat: str, request: Request, answer: Answer, settled: Settled, charged: _Charged
) -> None:
    """Raises Refused("bad_receipt") for anything that no honest party would sign about an outcome it was told.

    Signer, session and request were checked when the frame arrived.
    """
    if not isinstance(request, Outcome):
        raise MalformedMessage("a receipt came; allowed: votes or a step's reply, as requested")
    if settled.batch_digest != request.batch_digest:
        raise Refused(BAD_RECEIPT, f"the receipt of {seat!r} is for another batch than the outcome that it was told")
    cap = study.budgets.tagged_one(study.budgets.cap, study.seats[seat])
    least = charged.least(seat, charged.numbers[request.batch_digest])
    if not least <= settled.spent <= cap:
        raise Refused(
            BAD_RECEIPT,
            f"the receipt of {seat!r} says that {settled.spent} {cap.unit} are spent; allowed: from {int(least)}, "
            f"charged here, to its cap, {cap}",
        )
    if answer.own.count < 1:
        raise Refused(BAD_RECEIPT, f"the receipt of {seat!r} refers to an empty log")
    if not ledger.log.contains(answer.seen):
        raise Refused(BAD_RECEIPT, f"the receipt of {seat!r} names a head that this ledger's log never had")


def _note_bad(ledger: Ledger, seat: str, outcome: Outcome, refusal: Refusal) -> None:
    """Logs seat and batch once each, so that telling a party again at every connection does not fill the disk."""
    number, kind = ledger.number_of(outcome.batch_digest), f"{RECEIPT_REFUSED} {seat}"
    if ledger.noted(outcome.batch_digest, kind) is None:
        ledger.note(outcome.batch_digest, kind, b"")
        # A relayed batch has no number in this ledger.
        ledger.log.append(
            RECEIPT_REFUSED, seat=seat, batch=-1 if number is None else number, reason=refusal.reason[:300]
        )


def _reply(envelope: bytes, seat: str, request: Request) -> Reply:
    """The reply in an answer; a request in its place is malformed.

    Raises MalformedMessage, or Refused("bad_receipt") if the request was an outcome, as the sender signed its answer.
    """
    try:
        reply = decode(envelope)
        if not isinstance(reply, VoteReply | ConcealedVotes | StepReply | Settled | Refusal):
            raise MalformedMessage(f"{type(reply).__name__} was sent as a reply")
        if isinstance(request, Outcome) and not isinstance(reply, Settled | Refusal):
            raise MalformedMessage(f"{type(reply).__name__} was sent; allowed: a receipt or a refusal")
    except MalformedMessage as error:
        if isinstance(request, Outcome):
            raise Refused(BAD_RECEIPT, f"the receipt of {seat!r} cannot be read: {shortened(str(error))}") from None
        raise
    if isinstance(reply, Refusal):
        code = code_of(reply)
        return Refusal("refused" if code in _OWN_CODES else code, shortened(reply.reason))
    return reply


# outcome_for(seat, digest of a request): the outcome that a party still waits for; see Coordinator.outcome_for.
OutcomeFor = Callable[[str, bytes], Outcome | None]
# on_told(seat, outcome, the frames, its reply): called when a seat was told an outcome that it had missed.
OnTold = Callable[[str, Outcome, Answered, Reply | None], None]


@dataclass(eq=False)
class OpenStudy:
    """A study whose seats may be asked, with the coordinator's ledger of it.

    fault: set when nobody may be asked any more, because a party proves an entry that this ledger lacks; without: the
    seats that the operator does without, which are told so when they connect.
    """

    study: DeployedStudy
    ledger: Ledger
    outcome_for: OutcomeFor | None
    on_told: OnTold | None = None
    fault: Refused | None = None
    without: frozenset[str] = frozenset()

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
    """Splits a party's seats into those that may be asked, and those refused; see check_heads. A seat that the operator
    does without is in both: it may still be told outcomes."""
    served, refused = [], []
    for heads in seats:
        opened = studies.get(heads.study)
        try:
            if opened is not None:
                check_heads(opened, party, heads, own=own)
            served.append(heads)
            if opened is not None and heads.seat in opened.without:
                raise Refused(
                    Code.ASKED_WITHOUT,
                    f"the operator continues study {opened.study.name!r} without the seat {heads.seat!r}: no "
                    "further batch is asked of it, and what its ledger is charged for earlier ones stays charged",
                )
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
    # A seat that was charged and not told is served: it is told the outcome.
    if opened.study.votes.once and not heads.untold and not opened.ledger.settled(0).get(heads.seat, True):
        raise Refused(
            Code.ASKED_WITHOUT,
            f"study {opened.study.name!r} is asked once, and was, while the seat {heads.seat!r} was not there: it has "
            "no vote in what is released, and is charged nothing",
        )
