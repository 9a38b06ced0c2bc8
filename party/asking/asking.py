"""A hospital asks the consortium about its own records: it runs the Coordinator, over the operator's relay.

Everything that must survive a stop is in its own ledger, in the study's folder: running again continues with the batch
that was under way and costs nobody anything more. See protocols/levels/hidden_queries/querier.py for who sees what.
"""

from __future__ import annotations

import datetime
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.connection.dialling import RelayLine
from party.home import PartyHome
from protocols.crypto.channel import Channel
from protocols.crypto.identity import PEM_BYTES, certificate_from_pem
from protocols.crypto.randomness import system_source
from protocols.errors import ChannelClosed, InvalidInput, MalformedMessage, Refused, Unreachable
from protocols.labelling.coordinator import Coordinator, Labelling
from protocols.ledger.audit_log import EMPTY
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.querier import PrivateQueries, check_same_queries
from protocols.levels.level import code_of
from protocols.reading import read_bytes
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.study import party_of
from protocols.votes import NOT_ASKED
from protocols.wire.frames import NONCE_BYTES, Answer, Ask, read_frame, sign_frame
from protocols.wire.guardian import GuardianLine, conversation
from protocols.wire.messages import (
    ConcealedVotes,
    Refusal,
    Reply,
    Request,
    Settled,
    StepReply,
    VoteRequest,
    decode,
    encode,
)
from runtime.guardian_carrier import carry_to_guardian

# Requests in flight at once: a hub relays no more than this.
_AT_ONCE = 16
# Added to the study's deadline, to allow for messages in flight.
_ROOM_S = 60.0
# Entries of the asker's log: a seat had what it needs to vote, and no votes came; seats were named to the asker for
# that; a seat is done without.
_LATE, _NAMED, _WITHOUT = "late", "named", "without"


@dataclass(frozen=True, kw_only=True)
class AskingLine:
    """How a querying party reaches the others. hub, guardian: HOST:PORT; key, certificate: the querying party's own."""

    hub: str
    guardian: str
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate
    authority: x509.Certificate


def line_of(home: PartyHome, *, guardian: str) -> AskingLine:
    """The line of an enrolled home. guardian: HOST:PORT. Raises InvalidInput, Refused("not_enrolled")."""
    if not home.certificate.exists():
        raise Refused(Code.NOT_ENROLLED, f"{home.path} has no certificate; run: conclave-party enrol")
    invitation = home.invitation()
    return AskingLine(
        hub=invitation.address,
        guardian=guardian,
        key=home.open_key(),
        certificate=certificate_from_pem(read_bytes(home.certificate, most=PEM_BYTES)),
        authority=certificate_from_pem(invitation.authority),
    )


def check_querier(study: DeployedStudy, party: str) -> None:
    """Raises Refused unless this party may ask in the study, and the study has not ended."""
    terms, asks = study.terms, study.who_asks
    if study.confidentiality.asked_by != party:
        raise Refused(Code.NOT_QUERIER, f"{party!r} asks in study {study.name!r}; allowed: {asks}")
    if terms.ended(datetime.datetime.now(datetime.UTC).date()):
        raise Refused(Code.STUDY_ENDED, f"the study ended on {terms.ends}; allowed: one that still runs")


def asked_ledger_path(home: PartyHome, study: DeployedStudy) -> Path:
    """The ledger in which a querying party keeps what it has asked."""
    return home.study_folder(study.digest) / "asked.sqlite"


def ask(
    study: DeployedStudy,
    queries: Float32[ndarray, "queries ..."],
    line: AskingLine,
    *,
    ledger: Path,
    on_batch: Callable[[Sequence[tuple[int, int]]], None],
    without: Sequence[str] = (),
) -> Labelling:
    """Asks until all queries are labelled or a budget runs out; returns the labelling, whose `stop` says why it ended.

    without: seats of which no new batch is asked, now and for ever. Stops with "missed" once a seat's votes were too
    late for as many released batches as the terms say; its `refusals` are these seats. Asking again goes on as before.

    The guardian is contacted first: if the study's own guardian does not answer, no party is asked and nothing more is
    reserved. Raises InvalidInput if the queries differ from those asked before, or too few seats stay; Unreachable,
    also if the guardian is absent before anything was asked; Refused, also if the guardian is not the study's. Nothing
    is lost in these cases.
    """
    terms = study.terms
    if len(queries) > terms.pool_size:
        raise InvalidInput(f"{len(queries)} queries; allowed: at most {terms.pool_size}, by the study's terms")
    absent = _absent(study, line)
    if absent and not ledger.exists():
        raise Unreachable(f"{absent}; nothing was asked. If the address is right, ask who runs it")
    with Ledger(ledger) as own, _relay(line) as relay:
        check_same_queries(own, queries)
        aggregation = PrivateQueries(study, queries, lambda: _dial(study, line), key=line.key, source=system_source)
        relayed = Relayed(study, line, own, relay)
        coordinator = Coordinator(study, ledger=own, aggregation=aggregation, exchange=relayed, run=os.urandom(16))
        known = {str(entry.fields["seat"]) for entry in own.log.entries() if entry.event == _WITHOUT}
        gone, seats = {*known, *without}, set(study.seats)
        if without and (gone - seats or len(seats - gone) < study.quorum):
            raise InvalidInput(f"without is {', '.join(without)!r}; allowed: seats, if {study.quorum} stay")
        for seat in gone - known:
            own.log.append(_WITHOUT, seat=seat)

        def released(batches: Sequence[tuple[int, int]]) -> None:
            on_batch(batches)
            late, relayed.late = relayed.late, False
            if late and (often := _late_too_often(study, own)):
                own.log.append(_NAMED, seats=",".join(often))
                raise _Missed(*often)

        if absent:
            so_far = coordinator.so_far(len(queries), reason="guardian_lost")
            if (so_far.labels == NOT_ASKED).any():
                return so_far
        try:
            return coordinator.label(aggregation.positions, on_batch=released, without=lambda: gone)
        except _Missed as missed:
            found = coordinator.so_far(len(queries), reason="missed")
            return replace(found, refusals=dict.fromkeys(missed.args, Code.LATE))


class _Missed(Exception):
    """Whoever asks decides about these seats, its arguments."""


def _late_too_often(study: DeployedStudy, own: Ledger) -> list[str]:
    """The seats whose votes, since seats were last named, were too late for so many released batches."""
    late = set[tuple[str, int]]()
    for entry in own.log.entries():
        if entry.event == _NAMED:
            late.clear()
        elif entry.event == _LATE:
            late.add((str(entry.fields["seat"]), int(entry.fields["batch"])))
    missed = Counter(
        seat
        for seat, number in late
        if (batch := own.stored(number)) is not None and batch.settled and not own.settled(number).get(seat)
    )
    return sorted(seat for seat, times in missed.items() if times >= study.terms.misses)


def reserved(study: DeployedStudy, ledger: Path) -> Int64[ndarray, " parties"]:
    """The part of a labelling's `spent` that is reserved only, and may never be charged, per seat."""
    with Ledger(ledger) as own:
        balances = own.balances()
    return np.array([balances[seat.party].reserved for seat in study.roster], dtype=np.int64)


class Relayed:
    """A transport to the seats of a study over an operator's hub. A reply's signature shows which party it is from.

    late: whether a seat's votes did not come, since somebody last set it.
    """

    def __init__(self, study: DeployedStudy, line: AskingLine, ledger: Ledger, relay: RelayLine) -> None:
        self._study = study
        self._line = line
        self._ledger = ledger
        self._relay = relay
        self.late = False
        self._timeout_s = study.terms.deadline_s + _ROOM_S

    def __call__(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        threads = ThreadPoolExecutor(_AT_ONCE)
        try:
            answers = threads.map(lambda seat: self._asked(seat, requests[seat]), requests)
            return dict(zip(requests, answers, strict=True))
        except BaseException:  # also on Ctrl-C, even while sending: requests in flight are abandoned
            self._relay.close()
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def _asked(self, seat: str, request: Request) -> Reply | None:
        nonce, log = os.urandom(NONCE_BYTES), self._ledger.log
        ask = Ask(os.urandom(NONCE_BYTES), 1, nonce, self._study.digest, seat, log.head(), EMPTY, encode(request))
        frame = sign_frame(ask, key=self._line.key, certificate=self._line.certificate)
        signed = self._relay.passed(frame, timeout_s=self._timeout_s)
        if signed is None:
            if isinstance(request, VoteRequest):  # its party may have charged itself
                log.append(_LATE, seat=seat, batch=request.batch.number)
                self.late = True
            return None
        try:
            return self._read(seat, signed)
        except MalformedMessage as error:
            return Refusal(Code.MALFORMED, str(error))
        except Refused as error:
            return Refusal(error.code, str(error))

    def _read(self, seat: str, signed: bytes) -> Reply:
        now = datetime.datetime.now(datetime.UTC)
        answer, sender = read_frame(signed, authority=self._line.authority, now=now, role="party")
        if not isinstance(answer, Answer) or (answer.study, answer.seat) != (self._study.digest, seat):
            raise MalformedMessage("the hub returned a frame that is not a reply of this seat")
        if sender.name != party_of(seat):
            raise Refused(Code.WRONG_SIGNER, f"{sender.name!r} signed the reply for {seat!r}; allowed: its own party")
        reply = decode(answer.envelope)
        if not isinstance(reply, ConcealedVotes | StepReply | Settled | Refusal):
            raise MalformedMessage(f"{type(reply).__name__} was sent as a reply")
        if isinstance(reply, Settled):
            number = self._ledger.number_of(reply.batch_digest)
            if number is not None:
                self._ledger.log.keep(number, seat, "settled", signed)
        if isinstance(reply, Refusal):
            self._ledger.log.append("refused_by", seat=seat, code=code_of(reply))
        return reply


def _relay(line: AskingLine) -> AbstractContextManager[RelayLine]:
    return RelayLine(address=line.hub, key=line.key, certificate=line.certificate, authority=line.authority)


def _absent(study: DeployedStudy, line: AskingLine) -> str:
    """Why the guardian cannot be reached, "" if it can. Raises Refused for a guardian that is not the study's."""
    try:
        with conversation(study, _to_guardian(line), carry_to_guardian, purpose="check"):
            return ""
    except ChannelClosed as error:
        return str(error)


@contextmanager
def _dial(study: DeployedStudy, line: AskingLine) -> Iterator[Channel]:
    with conversation(study, _to_guardian(line), carry_to_guardian, purpose="batch") as (stream, _):
        yield stream


def _to_guardian(line: AskingLine) -> GuardianLine:
    return GuardianLine(
        address=line.guardian,
        key=line.key,
        certificate=line.certificate,
        authority=line.authority,
        denied=lambda identity: None,  # a hospital may not see the operator's list
        now=lambda: datetime.datetime.now(datetime.UTC),
    )
