"""A week of a consortium: what memory, files, threads, ledgers and logs hold at the end of each day.

    python benchmarks/week.py [--parties 250] [--studies 10] [--days 7] [--processes 5]

Nodes over gRPC and mutual TLS on loopback, several to a process. Their clock and the coordinator's begin as many days
ago, and go on a day at a time. Every day each study asks one batch of 100 queries; every node has its certificate
renewed; the logs are rotated (copied and truncated); the coordinator is started again; one process of nodes is stopped,
and goes on with the copies of its ledgers that SQLite's backup made. Ends by itself.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import psutil

from benchmarks.deployment import FEATURES, study_of, vote
from coordinator.connection import hub as hub_module
from coordinator.connection.hub import Hub
from party.connection import dialling as dialling_module
from party.connection import node as node_module
from party.connection.node import Node
from party.connection.seat import ServedSeat
from party.party import Party
from protocols.crypto.identity import (
    Identity,
    certificate_from_pem,
    issue,
    key_to_pem,
    new_authority,
    new_key,
    private_key_from_pem,
    request_from_pem,
    to_pem,
)
from protocols.crypto.randomness import system_source
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.noise import cryptographic
from protocols.study.file import read_deployed, write_study
from protocols.wire.enrolment import Enrolled
from runtime.files import write_atomically
from runtime.logs import Log

QUERIES = 100
# TLS looks at the machine's clock, so a certificate of the first day must outlive the week; it is renewed once a day,
# when less than that is left of it.
RENEW_DAYS_LEFT, VALID_DAYS = 19, 20


@contextmanager
def _clock(folder: Path, days: int) -> Iterator[None]:
    """Lets this process take the day from a file: the last of `days` is today."""

    def now() -> datetime.datetime:
        ago = days - 1 - int((folder / "day").read_text())
        return datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=ago)

    with ExitStack() as held:
        for module in (hub_module, node_module, dialling_module):
            held.enter_context(mock.patch.object(module, "_now", now))
        yield


def serve_nodes(folder: Path, first: int, last: int, days: int) -> None:
    """Runs the nodes of some parties until standard input is closed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    studies = [read_deployed(path) for path in sorted(folder.glob("*.toml"))]
    stop, authority = threading.Event(), certificate_from_pem((folder / "authority.pem").read_bytes())
    with ExitStack() as held:
        held.enter_context(_clock(folder, days))
        log = Log(held.enter_context((folder / f"{first}.log").open("a", encoding="utf-8")))
        threads = []
        for name in (f"h{number}" for number in range(first, last)):
            seats = []
            for study in studies:
                ledger = held.enter_context(Ledger(folder / f"{name}-{study.name}.sqlite"))
                party = Party(name, study=study, ledger=ledger, voter=vote, coins_from=None)
                seats.append(ServedSeat(study, party, ledger, anchor=lambda: None))
            node = Node(
                key=private_key_from_pem((folder / f"{name}.key").read_bytes()),
                certificate=certificate_from_pem((folder / f"{name}.pem").read_bytes()),
                authority=authority,
                address=(folder / "address").read_text(),
                seats=partial(list, seats),
                save_certificate=partial(write_atomically, folder / f"{name}.pem"),
                on_event=log,
                renew_days_left=RENEW_DAYS_LEFT,
            )
            threads.append(threading.Thread(target=node.run, args=(stop,)))
        for thread in threads:
            thread.start()
        sys.stdin.read()
        stop.set()
        for thread in threads:
            thread.join()


def _restored(path: Path) -> None:
    """Replaces a ledger by the copy that SQLite's backup makes of it."""
    copy = path.with_suffix(".copy")
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    copy.rename(path)


def week(
    parties: int, studies: int, days: int, processes: int, *, timeout_s: float = 600.0
) -> Iterator[dict[str, int]]:
    """One row a day: of the coordinator's process and of the largest of the nodes' processes MiB, files and threads;
    kB of a coordinator's ledger and of a seat's; kB of the day's log lines of all nodes; certificates renewed."""
    pool = np.random.default_rng(1).standard_normal((QUERIES * days, FEATURES)).astype(np.float32)
    agreed = [replace(study_of(parties, pool), name=f"s{number}") for number in range(studies)]
    agreed = [replace(study, votes=replace(study.votes, batch_limit=QUERIES)) for study in agreed]
    authority_key, key = new_key(), new_key()
    with tempfile.TemporaryDirectory() as name, _clock(folder := Path(name), days):
        (folder / "day").write_text("0")
        authority = new_authority(authority_key, name="week", now=hub_module._now(), days=2 * VALID_DAYS)

        def certify(public_key: object, name: str, role: str) -> bytes:
            return to_pem(
                issue(
                    authority=authority, authority_key=authority_key, public_key=public_key, name=name, role=role,
                    now=hub_module._now(), days=VALID_DAYS,
                )
            )  # fmt: skip

        renewed: list[str] = []

        def renew(party: Identity, request: bytes) -> bytes:
            renewed.append(party.name)
            return certify(request_from_pem(request).public_key(), party.name, "party")

        for study in agreed:
            (folder / f"{study.name}.toml").write_text(write_study(study))
        (folder / "authority.pem").write_bytes(to_pem(authority))
        for party in (seat.party for seat in agreed[0].roster):
            theirs = new_key()
            (folder / f"{party}.key").write_bytes(key_to_pem(theirs))
            (folder / f"{party}.pem").write_bytes(certify(theirs.public_key(), party, "party"))
        edges = list(itertools.pairwise(np.linspace(0, parties, processes + 1).astype(int).tolist()))
        nodes: list[subprocess.Popen[bytes]] = []

        def start(at: int) -> subprocess.Popen[bytes]:
            given = [sys.executable, "-m", "benchmarks.week", "--serve", name, *map(str, edges[at]), str(days)]
            return subprocess.Popen(given, stdin=subprocess.PIPE, cwd=Path(__file__).parents[1])

        port = 0
        try:
            for day in range(days):
                write_atomically(folder / "day", str(day).encode())  # nodes read it meanwhile
                hub = Hub(
                    key=key,
                    certificate=certificate_from_pem(certify(key.public_key(), "centre", "coordinator")),
                    authority=authority,
                    denied=lambda identity: None,
                    renew=renew,
                    enrol=lambda message: Enrolled(b"", "pending", ""),
                    on_event=lambda event, fields: None,
                )
                with ExitStack() as held:
                    ledgers = [held.enter_context(Ledger(folder / f"{study.name}.ledger")) for study in agreed]
                    transports = [hub.open_study(*both) for both in zip(agreed, ledgers, strict=True)]
                    port, _ = hub.start(listen=f"127.0.0.1:{port}", enrol_listen=None)
                    held.callback(hub.stop)
                    (folder / "address").write_text(f"127.0.0.1:{port}")
                    nodes = nodes or [start(at) for at in range(processes)]
                    missing = hub.wait_for(frozenset(seat.party for seat in agreed[0].roster), timeout_s=timeout_s)
                    if missing:
                        raise SystemExit(f"{len(missing)} nodes did not connect within {timeout_s:g} s")
                    for study, ledger, transport in zip(agreed, ledgers, transports, strict=True):
                        found = Coordinator(
                            study,
                            ledger=ledger,
                            aggregation=ClearAggregation(cryptographic(system_source)),
                            exchange=transport,
                            run=os.urandom(16),
                        ).label(pool[: QUERIES * (day + 1)])
                        if len(found.batches) != day + 1 or found.ledger_differences:
                            raise SystemExit(f"day {day + 1}, {study.name}: {found.stop}, {found.ledger_differences}")
                    yield _figures(folder, nodes, renewed=len(renewed))
                    renewed.clear()
                for first, _ in edges:  # as logrotate with copytruncate does it
                    shutil.copyfile(folder / f"{first}.log", folder / f"{first}.log.1")
                    os.truncate(folder / f"{first}.log", 0)
                at = day % processes
                nodes[at].communicate(timeout=timeout_s)
                for party, study in itertools.product(range(*edges[at]), agreed):
                    _restored(folder / f"h{party}-{study.name}.sqlite")
                nodes[at] = start(at)
        finally:
            for node in nodes:
                node.communicate(timeout=timeout_s)


def _figures(folder: Path, nodes: Sequence[subprocess.Popen[bytes]], *, renewed: int) -> dict[str, int]:
    def held(process: psutil.Process) -> tuple[int, int, int]:
        return process.memory_info().rss >> 20, process.num_fds(), process.num_threads()

    def largest(pattern: str) -> int:
        return max(sum(part.stat().st_size for part in folder.glob(f"{path.name}*")) for path in folder.glob(pattern))

    most = np.max([held(psutil.Process(each.pid)) for each in nodes], axis=0).tolist()
    names = ("mib", "files", "threads", "node_mib", "node_files", "node_threads")
    return {
        **dict(zip(names, (*held(psutil.Process()), *most), strict=True)),
        "ledger_kb": largest("s*.ledger") >> 10,
        "seat_kb": largest("h*.sqlite") >> 10,
        "log_kb": sum(path.stat().st_size for path in folder.glob("*.log")) >> 10,
        "renewed": renewed,
    }


def main() -> None:
    """Prints one row a day, as JSON, when it is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    for flag, usual in (("--parties", 250), ("--studies", 10), ("--days", 7), ("--processes", 5)):
        parser.add_argument(flag, type=int, default=usual)
    given = parser.parse_args()
    if given.serve:
        folder, *numbers = given.serve
        serve_nodes(Path(folder), *map(int, numbers))
        return
    for row in week(given.parties, given.studies, given.days, given.processes):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
