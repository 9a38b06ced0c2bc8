"""The seats' answers: replies, heads and evidence of a round, stored in one transaction.

A receipt is a party's signed statement of what its own ledger holds. It is checked on arrival, as far as a release
would check it: one that cannot be true is refused, its sender is named in the log, and the labelling continues. A
refused receipt proves nothing, and the release says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocols.errors import MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.level import code_of
from protocols.refusals.code import Code
from protocols.study.study import Study
from protocols.wire.frames import Answer
from protocols.wire.messages import (
    HiddenVotes,
    Outcome,
    Refusal,
    Reply,
    Request,
    Settled,
    StepReply,
    VoteReply,
    decode,
)
from runtime.logs import Event, printable

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
                    _check_receipt(study, ledger, seat, request, answered.answer, reply)
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
                number = ledger.number_of(request.batch_digest)
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


def _check_receipt(study: Study, ledger: Ledger, seat: str, request: Request, answer: Answer, settled: Settled) -> None:
    """Raises Refused("bad_receipt") for anything that no honest party would sign about an outcome it was told.

    Signer, session and request were checked when the frame arrived.
    """
    if not isinstance(request, Outcome):
        raise MalformedMessage("a receipt came; allowed: votes or a step's reply, as requested")
    if settled.batch_digest != request.batch_digest:
        raise Refused(BAD_RECEIPT, f"the receipt of {seat!r} is for another batch than the outcome that it was told")
    cap = int(study.budgets.cap[study.seats[seat]])
    least = _least(ledger, seat, ledger.number_of(request.batch_digest))
    if not least <= settled.spent <= cap:
        raise Refused(
            BAD_RECEIPT,
            f"the receipt of {seat!r} says that {settled.spent} units of account are spent; allowed: from {least}, "
            f"charged here, to its cap, {cap}",
        )
    if answer.own.count < 1:
        raise Refused(BAD_RECEIPT, f"the receipt of {seat!r} refers to an empty log")
    if not ledger.log.contains(answer.seen):
        raise Refused(BAD_RECEIPT, f"the receipt of {seat!r} names a head that this ledger's log never had")


def _least(ledger: Ledger, seat: str, number: int | None) -> int:
    """The least, in nano-units, that a party's ledger can hold once it was told the outcome of a batch.

    All that was settled here counts, since a party that voted had charged itself before; of batches that were given up,
    only those that the party settled, since others may never have reached it. 0 for a relayed batch, which is charged
    in the querying party's ledger and not here.
    """
    if number is None:
        return 0
    given_up = [each for each in ledger.unsettled() if ledger.given_up(each)]
    known = [each for each in given_up if each == number or ledger.log.kept(each, seat, "settled")]
    return ledger.balance(seat).settled + sum(ledger.charged(each).get(seat, 0) for each in known)


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
        if not isinstance(reply, VoteReply | HiddenVotes | StepReply | Settled | Refusal):
            raise MalformedMessage(f"{type(reply).__name__} was sent as a reply")
        if isinstance(request, Outcome) and not isinstance(reply, Settled | Refusal):
            raise MalformedMessage(f"{type(reply).__name__} was sent; allowed: a receipt or a refusal")
    except MalformedMessage as error:
        if isinstance(request, Outcome):
            raise Refused(BAD_RECEIPT, f"the receipt of {seat!r} cannot be read: {printable(str(error))}") from None
        raise
    if isinstance(reply, Refusal):
        code = code_of(reply)
        return Refusal("refused" if code in _OWN_CODES else code, printable(reply.reason))
    return reply
