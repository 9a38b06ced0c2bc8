"""The guardian's port: conversations with the coordinator, or a querying party, over gRPC with mutual TLS.

One bidirectional stream is one conversation about one study; each has its own thread, which runs the study's guardian.
A second conversation about the same study is refused while one is open. Every hospital of the consortium has a
certificate that TLS accepts: none of them may keep those out that a study names, nor fill the log.
"""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import Identity, certificate_from_pem, fingerprint, identify, key_to_pem, to_pem
from protocols.errors import (
    BudgetExceeded,
    ChannelClosed,
    ConclaveError,
    InvalidInput,
    MalformedMessage,
    Refused,
    StorageFailed,
)
from protocols.refusals.code import Code
from protocols.wire.guardian import (
    CONVERSE_METHOD,
    DENY_POLL_S,
    OPENING_BYTES,
    SILENCE_S,
    GuardedStudy,
    GuardianStream,
    Opening,
    read_opening,
    welcome,
)
from runtime.guardian_carrier import ANSWER_PINGS, GUARDIAN_STREAM, listen

# Conversations at once: of everybody, and of one caller, who has one a study and checks besides.
CONVERSATIONS, _EACH = 64, 16


class Callers:
    """asks(name): whether an approved study names this party as the one that asks. From any thread."""

    def __init__(self, *, asks: Callable[[str], bool]) -> None:
        self._asks = asks
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()
        self._turned_away: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def conversation(self, caller: Identity) -> Iterator[None]:
        """Counts a conversation while it lasts. Raises Refused before anything of it is read: "not_querier", "busy"."""
        if caller.role == "party" and not self._asks(caller.name):
            raise Refused(
                Code.NOT_QUERIER, f"{caller.name!r} asks; allowed: the querier of a study that this guardian approved"
            )
        with self._lock:
            if self._open[caller.name] >= _EACH:
                raise Refused(
                    Code.BUSY, f"{caller.name!r} has {_EACH} conversations open; allowed: at most that; ask again later"
                )
            self._open[caller.name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[caller.name] -= 1

    def turned_away(self, name: str, code: str) -> int:
        """Counts that a caller was turned away ("" for one without a valid certificate); returns how often that
        happened, or 0 where it need not be logged: only the 1st, 2nd, 4th, 8th ... time."""
        with self._lock:
            self._turned_away[name, code] += 1
            times = self._turned_away[name, code]
        return 0 if times & (times - 1) else times


_Event = Callable[[str, dict[str, str | int]], None]

_OPENING_WAIT_S = 10.0
_LAST_WORDS_S = 30.0
_OPTIONS = [*GUARDIAN_STREAM, *ANSWER_PINGS]


class GuardianPort:
    """Listens for whoever asks in an approved study: the coordinator, or a querying party.

    key, certificate: the guardian's; denied(identity): why a certificate is denied, or None; find(digest): the approved
    study, or Refused; asks(name): whether an approved study names this party as the one that asks; on_event(event,
    fields): for logs, holds only names, codes and counts; silence_s: how long the other side may be silent.
    """

    def __init__(
        self,
        *,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        authority: x509.Certificate,
        denied: Callable[[Identity], str | None],
        find: Callable[[bytes], GuardedStudy],
        asks: Callable[[str], bool],
        on_event: _Event,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._key = key
        self._certificate = certificate
        self._authority = authority
        self._denied = denied
        self._find = find
        self._callers = Callers(asks=asks)
        self._on_event = on_event
        self._silence_s = silence_s
        self._open: dict[GuardianStream, threading.Thread] = {}
        self._threads = ThreadPoolExecutor(CONVERSATIONS, thread_name_prefix="guardian-port")
        self._server = grpc.server(self._threads, options=[*_OPTIONS, *listen()], maximum_concurrent_rpcs=CONVERSATIONS)
        _, service, method = CONVERSE_METHOD.split("/")
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._converse)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))

    def start(self, listen: str) -> int:
        """Opens the port ("127.0.0.1:0" takes a free one); returns it. Raises InvalidInput if it is taken."""
        pair = [(key_to_pem(self._key), to_pem(self._certificate))]
        mutual = grpc.ssl_server_credentials(pair, to_pem(self._authority), require_client_auth=True)
        try:
            port = self._server.add_secure_port(listen, mutual)
        except RuntimeError:
            raise InvalidInput(f"cannot listen on {listen!r}; allowed: a HOST:PORT that is free") from None
        self._server.start()
        return port

    def stop(self) -> None:
        """Ends every conversation and closes the port: reservations stand, and a coordinator asks again.

        A conversation that is computing notices at its next message; this waits for it.
        """
        open_now = dict(self._open)
        for stream in open_now:
            stream.say_goodbye(Code.GOING_AWAY, "the guardian is stopping; ask again when it is back")
        self._server.stop(grace=1.0).wait()
        for holder in open_now.values():
            holder.join(_LAST_WORDS_S)
        self._threads.shutdown()

    def _converse(self, pieces: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Carries one conversation, which runs in its own thread."""
        stream = GuardianStream(silence_s=self._silence_s)
        context.add_callback(lambda: stream.abort("the coordinator is gone"))
        reader = threading.Thread(target=stream.feed, args=(_carried(pieces),), name="guardian-reader", daemon=True)
        holder = threading.Thread(target=self._hold, args=(stream, context), name="guardian-conversation", daemon=True)
        self._open[stream] = holder
        reader.start()
        holder.start()
        yield from stream.outgoing()

    def _hold(self, stream: GuardianStream, context: grpc.ServicerContext) -> None:
        try:
            self._greet_and_serve(stream, context)
        finally:
            stream.close()
            # Does not wait for a client that does not read the last message.
            if not stream.carried(timeout_s=_LAST_WORDS_S):
                context.cancel()
            self._open.pop(stream, None)

    def _greet_and_serve(self, stream: GuardianStream, context: grpc.ServicerContext) -> None:
        address, name = context.peer(), ""
        try:
            peer = self._identify(context)
            name = peer.name
            with self._callers.conversation(peer):
                opening = read_opening(stream.recv(OPENING_BYTES, within_s=_OPENING_WAIT_S))
                self._begin(stream, opening, self._find_for(peer, opening), peer, address)
        except ChannelClosed:
            return
        except ConclaveError as error:
            self._turned_away(address, name, _code_of(error), str(error))
            stream.say_goodbye(_code_of(error), _said(error))

    def _begin(
        self, stream: GuardianStream, opening: Opening, guarded: GuardedStudy, peer: Identity, address: str
    ) -> None:
        """Answers a check, or serves a batch unless the study has another conversation open."""
        if opening.purpose == "check":
            self._on_event("checked", {"address": address, "study": guarded.study.name})
            self._welcome(stream, opening)
        elif guarded.busy.acquire(blocking=False):
            try:
                self._serve(stream, opening, guarded, peer, address)
            finally:
                guarded.busy.release()
        else:
            said = "another conversation about this study is open; ask again when it has ended"
            self._turned_away(address, peer.name, Code.BUSY, said)
            stream.say_goodbye(Code.BUSY, said)

    def _turned_away(self, address: str, name: str, code: str, reason: str) -> None:
        times = self._callers.turned_away(name, code)
        if times:
            about: dict[str, str | int] = {"address": address, "code": code, "reason": reason[:200], "times": times}
            self._on_event("turned_away", about | ({"party": name} if name else {}))

    def _serve(
        self, stream: GuardianStream, opening: Opening, guarded: GuardedStudy, peer: Identity, address: str
    ) -> None:
        about: dict[str, str | int] = {"study": guarded.study.name, "address": address}
        self._on_event("conversation_began", about)
        ended = threading.Event()
        threading.Thread(target=self._watch, args=(stream, peer, about, ended), daemon=True).start()
        try:
            self._welcome(stream, opening)
            guarded.guardian.serve(stream)
        except ChannelClosed as error:
            self._on_event("conversation_broke", about | {"reason": str(error)[:200]})
        except (Refused, BudgetExceeded) as error:
            self._on_event("conversation_refused", about | {"code": _code_of(error), "reason": str(error)[:200]})
        except MalformedMessage:
            # The message of a failed check of shares may quote them.
            self._on_event("conversation_refused", about | {"code": Code.MALFORMED})
        except StorageFailed as error:
            self._on_event("storage_failed", about | {"reason": str(error)[:300]})
            stream.say_goodbye(Code.STORAGE_FAILED, _said(error))
        except Exception as error:  # noqa: BLE001  # its text may hold shares: only its kind is told, to anybody
            self._on_event("conversation_failed", about | {"code": type(error).__name__})
            stream.say_goodbye(Code.ERROR, "an unexpected error occurred at the guardian; its log says of what kind")
        else:
            self._on_event("conversation_ended", about)
        finally:
            ended.set()

    def _welcome(self, stream: GuardianStream, opening: Opening) -> None:
        stream.send(welcome(opening, key=self._key, certificate=self._certificate))

    def _identify(self, context: grpc.ServicerContext) -> Identity:
        """Who dials, by the certificate of the connection. Raises Refused if not allowed."""
        pem = next(iter(context.auth_context().get("x509_pem_cert", [b""])))
        assert isinstance(pem, bytes)  # which the type stubs do not say
        certificate = certificate_from_pem(pem)
        now = datetime.datetime.now(datetime.UTC)
        try:
            peer = identify(certificate, authority=self._authority, now=now, role="coordinator")
        except Refused as refused:
            if refused.code != Code.WRONG_ROLE:
                raise
            # A party's certificate is allowed too: a party may be the querier of a study.
            peer = identify(certificate, authority=self._authority, now=now, role="party")
        if peer.fingerprint == fingerprint(self._key.public_key()):
            raise Refused(
                Code.SAME_ORGANISATION, "the coordinator uses this guardian's own key; allowed: a key of its own"
            )
        self._check_allowed(peer)
        return peer

    def _check_allowed(self, peer: Identity) -> None:
        reason = self._denied(peer)
        if reason is not None:
            raise Refused(Code.REVOKED, f"the coordinator {peer.name!r} is denied by this guardian: {reason}")

    def _watch(
        self, stream: GuardianStream, peer: Identity, about: dict[str, str | int], ended: threading.Event
    ) -> None:
        """Cuts a conversation soon after its other side is denied, whatever it is about."""
        while not ended.wait(DENY_POLL_S):
            try:
                self._check_allowed(peer)
            except Refused as refused:
                self._on_event("conversation_cut", about | {"code": refused.code, "reason": str(refused)[:200]})
                stream.cut(refused.code, _said(refused))
                return

    def _find_for(self, peer: Identity, opening: Opening) -> GuardedStudy:
        """The study that the conversation is about. Raises Refused unless this caller may ask about it now."""
        guarded = self._find(opening.study)
        terms, role = guarded.study.terms, guarded.study.confidentiality.asking_role
        if peer.role != role:
            raise Refused(Code.WRONG_ROLE, f"the certificate is not that of a {role}")
        if peer.name != guarded.study.who_asks:
            raise Refused(
                Code.OTHER_COORDINATOR, f"{peer.name!r} asks; allowed: {guarded.study.who_asks!r}, named in the study"
            )
        if terms.ended(datetime.datetime.now(datetime.UTC).date()):
            raise Refused(Code.STUDY_ENDED, f"the study ended on {terms.ends}")
        return guarded


def _code_of(error: ConclaveError) -> str:
    """The code of an error, for the other side and for logs."""
    match error:
        case Refused():
            return error.code
        case BudgetExceeded():
            return Code.BUDGET_EXCEEDED
        case StorageFailed():
            return Code.STORAGE_FAILED
        case MalformedMessage():
            return Code.MALFORMED
        case _:
            return Code.ERROR


def _said(error: ConclaveError) -> str:
    """The message for the coordinator, which names no file on this machine."""
    match error:
        case StorageFailed():
            return "the guardian's disk cannot be written; nothing was released"
        case Refused() | MalformedMessage():
            return str(error).removeprefix(f"{_code_of(error)}: ")
        case _:
            return "the study cannot be used at the guardian; its operator's log says why"


def _carried(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The messages of a gRPC stream. Raises ChannelClosed when it breaks."""
    try:
        yield from pieces
    except grpc.RpcError:
        raise ChannelClosed("the coordinator is gone") from None
