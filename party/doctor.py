"""What prevents a node from working: each step from the home to the study, up to the one that fails, and what is next.

A step that is still to come is not wrong: a new home has no certificate, an enrolled one no study.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from party.budget.policy import Approval, Policy
from party.budget.spending import HomeSpent, what_was_spent
from party.connection.dialling import say_hello
from party.home import PartyHome
from party.lifetime import seats_of
from party.settings import Invitation, PartySettings
from party.voting.contribution import read_contribution, votes_given
from party.voting.teacher_process import late_after_s
from party.voting.trained import read_measured, read_teachers_manifest
from protocols.crypto.identity import COORDINATOR_HOST, PEM_BYTES, certificate_from_pem, identify
from protocols.errors import (
    ConclaveError,
    DataCorrupt,
    DataUnavailable,
    InvalidInput,
    Refused,
    StorageFailed,
    Unreachable,
)
from protocols.plural import counted
from protocols.private_files import open_to_others
from protocols.reading import read_bytes
from protocols.refusals.code import Code
from protocols.refusals.table import meaning_of
from protocols.study.deployed import DeployedStudy
from protocols.study.votes import TeacherVotes, UnitSums, Votes, teacher_votes
from protocols.wire.frames import Goodbye

_TIMEOUT_S: Final = 10.0
_SKEW_MS: Final = 60_000
_EXPIRES_SOON_DAYS: Final = 3


@dataclass(frozen=True)
class Hop:
    """The result of one step. ok: whether nothing is wrong; found: what was found; todo: what to do, "" if nothing;
    waits: whether it is the step that comes next, so that nothing after it can be examined.
    """

    name: str
    ok: bool
    found: str
    todo: str = ""
    exit_code: int = 0
    waits: bool = False


def examine(home: PartyHome, *, timeout_s: float = _TIMEOUT_S) -> Iterator[Hop]:
    """The result of each step in turn, up to the first that fails or is still to come; every study is examined."""
    try:
        invitation = home.invitation()
    except InvalidInput as error:
        yield Hop("home", False, str(error), "run: conclave-party init INVITATION.toml, or give --home", 3)
        return
    yield Hop("home", True, f"party {invitation.party} of {invitation.consortium}, {home.path}")
    yield _permissions(home)
    settings = _settings(home)
    if isinstance(settings, Hop):
        yield settings
        if not settings.ok:
            return
    else:
        yield (data := _data(settings))
        if not data.ok:
            return
    # A certificate is asked for at the second port.
    dialled = [invitation.address, *([] if home.certificate.exists() else [invitation.enrol_address])]
    network = (hop for address in dialled for hop in _network(home, invitation, address, timeout_s))
    for hop in chain(network, _certificate(home, invitation)):
        yield hop
        if not hop.ok or hop.waits:
            return
    for hop in _session(home, invitation, timeout_s):
        yield hop
        if not hop.ok:
            return
    if isinstance(settings, PartySettings):
        yield from _own(home, settings)


def _settings(home: PartyHome) -> PartySettings | Hop:
    """node.toml; or the hop that says what is wrong with it, or (after `init`) what has to be filled in."""
    try:
        return home.settings()
    except InvalidInput as error:
        waits = " missing; allowed" in str(error) and home.settings_file.exists()
        todo = f"fill in {home.settings_file}" if waits else "correct the file, or run: conclave-party init"
        return Hop("settings", waits, str(error), todo, 0 if waits else 3, waits=waits)


def _data(settings: PartySettings) -> Hop:
    """Whether the files of the hospital's records are there."""
    gone = [path for path in settings.data.source.files if not path.exists()]
    if gone:
        return Hop("data", False, f"{gone[0]} does not exist", "correct [data] in node.toml", 3)
    return Hop("data", True, f"{settings.data.name}: {settings.data.shown}")


def _own(home: PartyHome, settings: PartySettings) -> Iterator[Hop]:
    """The hospital's approvals and ledgers, and its studies."""
    try:
        with Policy(settings.policy) as policy:
            found = what_was_spent(home, policy)
            if found.doubt is not None:
                yield _wrong("approvals", found.doubt)
                return
            studies = list(_studies(home, policy, found, settings.data.name))
    except (Refused, StorageFailed) as error:
        yield _wrong("approvals", error)
        return
    yield from studies
    if studies and all(hop.ok and not hop.waits for hop in studies) and not home.is_running:
        yield Hop("node", True, "no node runs from this home", "run: conclave-party run", waits=True)


def _wrong(name: str, error: ConclaveError) -> Hop:
    """The hop that an error of the home fails at."""
    code, exit_code = (error.code, 4) if isinstance(error, Refused) else (Code.INVALID_INPUT, 3)
    if isinstance(error, StorageFailed):
        code, exit_code = Code.STORAGE_FAILED, 6
    return Hop(name, False, str(error), meaning_of(code).next_step, exit_code)


def _permissions(home: PartyHome) -> Hop:
    """Which files of the home other users can read; the examination continues in any case."""
    found = open_to_others(home.path)
    if not found:
        return Hop("files", True, "only its owner can read the home")
    named = ", ".join(str(each.relative_to(home.path)) for each in found[:5])
    shown = f"others can read {len(found)} files or folders of the home: {named}"
    return Hop("files", True, shown, f"chmod -R go= {home.path}; conclave-party run does it too")


def _network(home: PartyHome, invitation: Invitation, address: str, timeout_s: float) -> Iterator[Hop]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        yield Hop(
            "DNS", False, f"{host}: {error.strerror or error}", "ask the network's administrator, or the operator", 7
        )
        return
    yield Hop("DNS", True, f"{host} is {found[0][4][0]}")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
            yield Hop("TCP", True, f"port {port} is open")
            yield _tls(connection, home, invitation)
    except OSError as error:
        todo = (
            "allow this machine to reach that address and port (firewall, proxy), or ask whether the coordinator runs"
        )
        yield Hop("TCP", False, f"{address}: {error.strerror or error}", todo, 7)


def _tls(connection: socket.socket, home: PartyHome, invitation: Invitation) -> Hop:
    """Whether the server shows a certificate from this consortium's authority; the node's own is checked later."""
    context = ssl.create_default_context(cadata=invitation.authority.decode())
    context.set_alpn_protocols(["h2"])
    if home.certificate.exists() and home.key.exists():
        with contextlib.suppress(ssl.SSLError):  # checked in the next step
            context.load_cert_chain(home.certificate, home.key)
    try:
        with context.wrap_socket(connection, server_hostname=COORDINATOR_HOST) as secured:
            return Hop("TLS", True, f"{secured.version()}, the coordinator's certificate is from this consortium")
    except ssl.SSLCertVerificationError as error:
        todo = "if the clock is right: something else answers there (a proxy that opens TLS?), or the invitation is old"
        return Hop("TLS", False, f"the server's certificate: {error.verify_message}", todo, 7)
    except (OSError, ValueError) as error:
        return Hop("TLS", False, f"no TLS there: {error}", "check the address with the operator", 7)


def _certificate(home: PartyHome, invitation: Invitation) -> Iterator[Hop]:
    if not home.certificate.exists():
        todo = "have the operator approve this home's fingerprint, and run: conclave-party enrol --wait 600"
        yield Hop("certificate", True, "there is none yet", todo, waits=True)
        return
    now = datetime.datetime.now(datetime.UTC)
    try:
        certificate = certificate_from_pem(read_bytes(home.certificate, most=PEM_BYTES))
        own = identify(certificate, authority=certificate_from_pem(invitation.authority), now=now, role="party")
        key = home.open_key()
    except (ConclaveError, OSError) as error:
        code = error.code if isinstance(error, Refused) else "unreadable"
        known = code in (Code.CERTIFICATE_EXPIRED, Code.WRONG_AUTHORITY)
        todo = meaning_of(code).next_step if known else "enrol again with a new invitation"
        yield Hop("certificate", False, str(error), todo, 4)
        return
    left = certificate.not_valid_after_utc - now
    if own.name != invitation.party or key.public_key() != certificate.public_key():
        yield Hop("certificate", False, f"it is for {own.name!r} or another key", "enrol again", 4)
        return
    soon = left < datetime.timedelta(days=_EXPIRES_SOON_DAYS)
    todo = "it is renewed while `conclave-party run` is connected" if soon else ""
    yield Hop(
        "certificate", True, f"{own.name}, valid until {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC", todo
    )


def _session(home: PartyHome, invitation: Invitation, timeout_s: float) -> Iterator[Hop]:
    try:
        with home.running():
            answer = say_hello(
                address=invitation.address,
                key=home.open_key(),
                certificate=certificate_from_pem(read_bytes(home.certificate, most=PEM_BYTES)),
                authority=certificate_from_pem(invitation.authority),
                now=datetime.datetime.now(datetime.UTC),
                timeout_s=timeout_s,
            )
    except Unreachable as error:
        yield Hop("session", False, str(error), "see the coordinator's log: it rejected this certificate", 7)
        return
    except ConclaveError as error:
        if isinstance(error, Refused) and error.code == Code.ALREADY_RUNNING:
            yield Hop(
                "session", True, "not tried: a node is running from this home; its log says whether it is connected"
            )
            return
        yield Hop("session", False, str(error), "what answers there is not this consortium's coordinator", 4)
        return
    if isinstance(answer, Goodbye):
        said, todo = answer.reason.removeprefix(f"{answer.code}: "), meaning_of(answer.code).next_step
        yield Hop("session", False, f"{answer.code}: {said}", todo or "ask the consortium's operator", 4)
        return
    yield Hop("session", True, f"the coordinator welcomed {invitation.party}, wire version {answer.version}")
    skew_ms = answer.time_ms - time.time_ns() // 1_000_000
    wrong = abs(skew_ms) > _SKEW_MS
    todo = "synchronise the clock of this machine (NTP)" if wrong else ""
    yield Hop("clock", not wrong, f"{-skew_ms / 1000:+.1f} s from the coordinator's", todo, 4 if wrong else 0)


def _studies(home: PartyHome, policy: Policy, found: HomeSpent, data_set: str) -> Iterator[Hop]:
    approvals = policy.own_approvals(home)
    if all(approval.withdrawn for approval in approvals):
        todo = "run: conclave-party data check STUDY.toml, which says how to approve it"
        yield Hop("study", True, "no study is approved here", todo, waits=True)
    for approval in approvals:
        name = f"study {approval.name}"
        try:
            found.check(approval.study)
            if approval.withdrawn or approval.data_set != data_set:
                ended = "forfeited" if policy.forfeits.reason(approval.data_set) is not None else "withdrawn"
                why = ended if approval.withdrawn else f"for data set {approval.data_set!r}"
                yield Hop(name, True, why)
                continue
            study = home.study(approval.study)
            if study.terms.ended(datetime.datetime.now(datetime.UTC).date()):
                yield Hop(name, True, f"it ended on {study.terms.ends}: the node no longer answers")
            else:
                yield _ready(home, study, approval)
        except ConclaveError as error:
            yield _wrong(name, error)


def _ready(home: PartyHome, study: DeployedStudy, approval: Approval) -> Hop:
    """What a study's seats vote with, or what is still to do."""
    seats = seats_of(study, approval.party)
    name, until = f"study {study.name}", f"approved until {study.terms.ends}"
    return _READY[type(study.votes)](home, study, seats, name, until)


def _teachers_ready(home: PartyHome, study: DeployedStudy, seats: Sequence[str], name: str, until: str) -> Hop:
    try:
        for seat in seats:
            read_teachers_manifest(home.teachers(study.digest, seat))
    except DataUnavailable as error:
        return Hop(name, True, f"{until}; {error}", f"run: conclave-party train {study.name}", waits=True)
    trained = f"{until}, trained: {counted(teacher_votes(study).teachers, 'teacher')} per seat"
    return _in_time(home, study, seats, Hop(name, True, trained))


def _records_ready(home: PartyHome, study: DeployedStudy, seats: Sequence[str], name: str, until: str) -> Hop:
    waiting = [seat for seat in seats if not votes_given(home, study, seat)]
    try:
        for seat in waiting:
            read_contribution(home.contribution(study.digest, seat), study)
    except (DataUnavailable, DataCorrupt) as error:
        todo = "run: conclave-party approve STUDY.toml --queries FILE, which counts its votes again"
        return Hop(name, False, str(error), todo, 3)
    said = "its records' votes are counted" if waiting else "its records have voted"
    return Hop(name, True, f"{until}, {said}")


_READY: dict[type[Votes], Callable[[PartyHome, DeployedStudy, Sequence[str], str, str], Hop]] = {
    TeacherVotes: _teachers_ready,
    UnitSums: _records_ready,
}


def _in_time(home: PartyHome, study: DeployedStudy, seats: Sequence[str], found: Hop) -> Hop:
    """What was found, with how long a whole batch took here when the node last started: it may be too long."""
    measured = [each for seat in seats if (each := read_measured(home.teachers(study.digest, seat))) is not None]
    if not measured:
        return found
    slowest, deadline_s = max(measured, key=lambda each: each.seconds), study.terms.deadline_s
    queries = counted(slowest.queries, "query")
    took = f"a batch of {queries} takes {slowest.seconds:.3g} s here, of the study's {deadline_s:g} s"
    if slowest.seconds < deadline_s / 2:
        return replace(found, found=f"{found.found}; {took}")
    todo = "ask the operator for a study with a longer deadline_s or a smaller batch_limit, or use a faster machine"
    return replace(
        found, ok=slowest.seconds < late_after_s(deadline_s), found=f"{found.found}; {took}", todo=todo, exit_code=4
    )
