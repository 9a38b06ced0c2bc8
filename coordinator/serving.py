"""Serve: runs the hub, the jobs and the deny list of one home until it is stopped.

Other commands write to the store; serve reads it twice per second for jobs, studies and revocations.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Protocol

from coordinator.connection.hub import Hub
from coordinator.connection.relaying import RelayedStudy
from coordinator.connection.sessions import Silence
from coordinator.home import CoordinatorHome
from coordinator.labelling.jobs import Guardians, OpensStudies, ServedStudy
from coordinator.members import Authority
from coordinator.status import operator_page, read_status, status_metrics, students_trained
from coordinator.store.store import Job, Serving, SessionRecord, SilenceRecord, Store
from protocols.crypto.channel import Channel
from protocols.crypto.identity import Identity
from protocols.errors import ConclaveError, StorageFailed
from protocols.private_files import tighten
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.wire.enrolment import Enrol, Enrolled
from protocols.wire.guardian import GuardianLine as GuardianLine
from protocols.wire.guardian import conversation
from runtime.files import alone, serving_alone
from runtime.guardian_carrier import carry_to_guardian
from runtime.logs import Event, Log
from runtime.loopback import LINK_FILE, LivePage, Monitor, exposition


def check_guardian(study: DeployedStudy, line: GuardianLine) -> Identity:
    """The identity of the study's guardian, once it has confirmed that it approved this very study; asks nothing else.

    Raises as `conversation` does.
    """
    with conversation(study, line, carry_to_guardian, purpose="check") as (_, guardian):
        return guardian


@contextmanager
def dial(study: DeployedStudy, line: GuardianLine) -> Iterator[Channel]:
    """A channel to the study's guardian for one batch. Raises as `conversation` does; ChannelClosed for "busy"."""
    with conversation(study, line, carry_to_guardian, purpose="batch") as (stream, _):
        yield stream


_LOOK_S = 0.5
_HEALTHY_S = 10.0


class Serves(OpensStudies, Protocol):
    """The part of a hub that serve needs; implemented by Hub."""

    def start(self, *, listen: str, enrol_listen: str | None) -> tuple[int, int | None]:
        """Opens the ports."""

    def silent(self) -> Mapping[str, Silence]:
        """The parties that did not answer when they were last waited for."""

    def stop(self) -> None:
        """Closes the ports."""


class DenyList:
    """Who is denied, as read from the store a moment ago. A certificate that the store does not know is denied too: a
    store restored from a backup may have forgotten whom it denied."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: frozenset[str] = frozenset()
        self._denied: dict[str, str] = {}
        self.look()

    def look(self) -> None:
        """Reads the list again. Raises StorageFailed."""
        self._denied = self._store.members.denied()
        self._known = self._store.members.serials()

    def __call__(self, identity: Identity) -> str | None:
        """The reason why this certificate is denied, or None."""
        serial = str(identity.serial)
        if serial not in self._known:
            self.look()
        if serial not in self._known:
            return "its certificate is not in this coordinator's records"
        return self._denied.get(serial)


def serve(
    home: CoordinatorHome,
    *,
    stop: threading.Event,
    log: Log,
    page_port: int | None = None,
    show_link: Callable[[str], None] = lambda link: None,
    paste: Callable[[str], str] = str,
    hub_of: Callable[..., Serves] = Hub,
    clock: Callable[[], int] = time.time_ns,
    steady: Callable[[], float] = time.monotonic,
) -> None:
    """Serves until `stop` is set, and renews the coordinator's certificate in time; nodes then reconnect.

    page_port: of the live page, 0 for any free one, None for no page; show_link: receives the link that opens it once;
    paste: as of `operator_page`; clock: nanoseconds since 1970; steady: seconds of a monotonic clock. Raises
    Refused("already_serving"), InvalidInput for a port that is taken, and StorageFailed if the store or a ledger can no
    longer be written: every charge is on disk then.
    """
    settings = home.settings()
    with ExitStack() as held:
        held.enter_context(alone(home.lock_file, serving_alone(home.lock_file)))
        tighten(home.folder)
        store = held.enter_context(Store(home, clock=clock, steady=steady))
        authority = Authority(home, store, settings)
        store.clear_sessions()
        if page_port is not None:
            shown = partial(_live_page, home, store, settings.consortium, paste)
            page = held.enter_context(LivePage(page_port, page=shown, file=home.folder / LINK_FILE))
            log("page_opened", {"port": page.port, "file": str(page.file)})
            show_link(page.link)
        listen, enrol_listen = settings.listen, settings.enrol_listen
        while not stop.is_set():
            listen, enrol_listen = _serve_one_certificate(
                home, store, authority, listen, enrol_listen, stop=stop, log=log, hub_of=hub_of
            )
        store.clear_sessions()
        store.trail.append("serve_ended")
        log("served", {"process": os.getpid()})


def _live_page(home: CoordinatorHome, store: Store, consortium: str, paste: Callable[[str], str]) -> str:
    status = read_status(store, now_s=time.time())
    names = [each["study"] for each in status["studies"]]
    # Nothing is trained of a count.
    trained = students_trained(home.studies, names)
    trained |= {name: True for name in names if not store.study(name).votes.pool}
    return operator_page(status, consortium=consortium, trained=trained, now_s=time.time(), paste=paste)


def _serve_one_certificate(
    home: CoordinatorHome,
    store: Store,
    authority: Authority,
    listen: str,
    enrol_listen: str,
    *,
    stop: threading.Event,
    log: Log,
    hub_of: Callable[..., Serves],
) -> tuple[str, str]:
    """Serves until `stop` is set or the certificate is due for renewal; returns the addresses on which it listened."""
    settings, certificate, denied = home.settings(), authority.own_certificate(), DenyList(store)
    hub = hub_of(
        key=home.key(),
        certificate=certificate,
        authority=authority.certificate,
        denied=denied,
        renew=authority.renew,
        enrol=_Door(authority, log).enrol,
        on_event=log,
        on_withdrawn=partial(_note_withdrawn, store, log),
    )
    guardians = None
    if settings.guardian:
        guardians = _Guardians(
            GuardianLine(
                address=settings.guardian,
                key=home.key(),
                certificate=certificate,
                authority=authority.certificate,
                denied=denied,
                now=lambda: datetime.datetime.now(datetime.UTC),
            )
        )
    running = _Running(store, hub, denied, log, guardians=guardians, patience_s=settings.patience_s, stop=stop)
    monitor = None
    try:
        port, enrol_port = hub.start(listen=listen, enrol_listen=enrol_listen)
        if settings.metrics_port:
            monitor = Monitor(
                settings.metrics_port,
                healthy=running.healthy,
                metrics=lambda: exposition(status_metrics(read_status(store, now_s=time.time())), dict(log.counts)),
            )
        ports = (port, enrol_port or 0, monitor.port if monitor else 0)
        store.trail.append("serve_started", port=port)
        log("serving", {"process": os.getpid(), "port": ports[0], "enrol_port": ports[1], "metrics_port": ports[2]})
        running.until_stopped(ports, due=lambda: authority.renewal_due(certificate))
        if not stop.is_set():
            log("certificate_due", {"until": str(certificate.not_valid_after_utc)})
    finally:
        running.end()
        if monitor is not None:
            monitor.close()
        hub.stop()
        running.close()
    return _at(listen, ports[0]), _at(enrol_listen, ports[1])


def _note_withdrawn(store: Store, log: Log, party: str, studies: Sequence[bytes]) -> None:
    """Keeps and logs which studies a hospital says that it ended, each once."""
    for study in store.withdrawals.add(party, studies):
        log("withdrawn", {"party": party, "study": study})


def _at(address: str, port: int) -> str:
    """The address with the port that was actually opened."""
    return f"{address.rpartition(':')[0]}:{port}"


class _Guardians:
    """Reaches the guardians of studies."""

    def __init__(self, line: GuardianLine) -> None:
        self._line = line

    def dial(self, study: DeployedStudy) -> AbstractContextManager[Channel]:
        return dial(study, self._line)

    def check(self, study: DeployedStudy) -> None:
        check_guardian(study, self._line)


class _Door:
    """Answers requests to be let in, and logs the first of each hospital, with what the operator does next."""

    def __init__(self, authority: Authority, on_event: Event) -> None:
        self._authority, self._on_event = authority, on_event
        self._asked: set[str] = set()

    def enrol(self, message: Enrol) -> Enrolled:
        """As Authority.enrol."""
        answer = self._authority.enrol(message)
        # Pending only for somebody whom the operator invited: the set is bounded by invitations.
        if answer.code == Code.PENDING and message.party not in self._asked:
            self._asked.add(message.party)
            said = f"have it read out its words by telephone, then: conclave-coordinator approve {message.party}"
            self._on_event("asks_to_be_let_in", {"party": message.party, "reason": said})
        return answer


class _Running:
    """The studies that serve has open, and a thread for each job."""

    def __init__(
        self,
        store: Store,
        hub: Serves,
        denied: DenyList,
        log: Log,
        *,
        guardians: Guardians | None,
        patience_s: float,
        stop: threading.Event,
    ) -> None:
        self._store = store
        self._hub = hub
        self._denied = denied
        self._log = log
        self._guardians = guardians
        self._patience_s = patience_s
        self._stop = stop
        # Set to end the jobs: when serve stops, one of them fails, or the certificate is renewed.
        self._ended = threading.Event()
        self._studies: dict[str, ServedStudy | RelayedStudy] = {}
        self._broken: set[str] = set()
        self._threads: dict[int, threading.Thread] = {}
        self._failure: BaseException | None = None
        self._looked = time.monotonic()

    def healthy(self) -> bool:
        """Whether serve has read its store within the last moments."""
        return time.monotonic() - self._looked < _HEALTHY_S and not self._stop.is_set()

    def until_stopped(self, ports: tuple[int, int, int], *, due: Callable[[], bool]) -> None:
        """Reads the store twice per second, until serve stops or `due()` is true."""
        while True:
            self._denied.look()
            self._open_studies()
            if not self._ended.is_set():
                self._start_jobs()
            sessions = [
                SessionRecord(
                    name, each.since, each.last_seen, each.address, each.software, each.wire_version,
                    tuple(sorted((study.hex(), seat) for study, seat in each.seats)),
                )
                for name, each in self._hub.connected().items()
            ]  # fmt: skip
            silent = [SilenceRecord(name, each.since_s, each.times) for name, each in self._hub.silent().items()]
            self._store.write_sessions(sessions, Serving(os.getpid(), time.time(), *ports), silent)
            self._looked = time.monotonic()
            stopped = self._stop.wait(_LOOK_S)
            if self._failure is not None:
                raise self._failure
            if stopped:
                return
            if due():
                # A job may be training and not react at once: until it ends, parties are still served, and can be
                # revoked.
                self._ended.set()
                if not any(thread.is_alive() for thread in self._threads.values()):
                    return

    def end(self) -> None:
        """Ends the jobs and waits for them."""
        self._ended.set()
        for thread in self._threads.values():
            thread.join()

    def close(self) -> None:
        """Closes the ledgers."""
        for study in self._studies.values():
            study.close()

    def _open_studies(self) -> None:
        for name in self._store.studies():
            if name in self._studies or name in self._broken:
                continue
            try:
                self._studies[name] = self._opened(name)
            except StorageFailed:
                raise
            except ConclaveError as error:
                self._broken.add(name)
                self._log("study_refused", {"study": name, "reason": str(error)})

    def _opened(self, name: str) -> ServedStudy | RelayedStudy:
        if self._store.study(name).confidentiality.asked_by:
            return RelayedStudy(self._store, name, self._hub.open_study)
        return ServedStudy(
            self._store, name, self._hub, guardians=self._guardians, stop=self._ended, on_event=self._log
        )

    def _start_jobs(self) -> None:
        for job in self._store.open_jobs():
            if job.number in self._threads:
                continue
            if job.study in self._broken:
                self._store.end_job(job.number, "failed", "the study cannot be opened; see the log of serve", None)
                continue
            thread = threading.Thread(target=self._run, args=(job,), name=f"job-{job.number}")
            self._threads[job.number] = thread
            thread.start()

    def _run(self, job: Job) -> None:
        try:
            self._studies[job.study].run(job, patience_s=self._patience_s)
        except BaseException as error:  # noqa: BLE001  # it is raised again by the thread that serves
            self._failure = error
            self._ended.set()
