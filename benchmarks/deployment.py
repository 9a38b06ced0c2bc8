"""Rounds over real processes, gRPC and mutual TLS on loopback: latency, memory of the coordinator and of an idle node.

    python benchmarks/deployment.py

A round is one batch: vote, noise, outcome, with every ledger on disk (SQLite, synchronous FULL) and teachers that only
look at one feature. `votes` is the exchange of requests and votes alone. For comparison the same batches run in one
process with ledgers in memory. Loopback only; ends by itself.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from coordinator.connection.hub import Hub
from coordinator.in_process import InProcessTransport
from party.connection.node import Node
from party.connection.seat import ServedSeat
from party.party import Party
from protocols.crypto.identity import (
    certificate_from_pem,
    issue,
    key_to_pem,
    new_authority,
    new_key,
    private_key_from_pem,
    to_pem,
)
from protocols.crypto.randomness import system_source
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.mechanisms import ConfidentGNMax
from protocols.noise import cryptographic
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed, write_study
from protocols.study.levels import Clear
from protocols.study.queries import QueryBatch, pool_digest
from protocols.study.study import Seat as StudySeat
from protocols.study.terms import Terms
from protocols.study.votes import TeacherVotes
from protocols.wire.enrolment import Enrolled
from protocols.wire.messages import VoteRequest

FEATURES, QUERIES, ROUNDS = 16, 1000, 8


def study_of(parties: int, pool: np.ndarray) -> DeployedStudy:
    """Noise so large that a batch of 1,000 queries fits every budget: rounds are what is measured."""
    seats = (StudySeat(party=f"h{i}", epsilon=4.0, delta=1e-5, weight=1.0, rate=1.0) for i in range(parties))
    terms = Terms(
        task="benchmark",
        class_names=("no", "yes"),
        label="label",
        input_shape=(FEATURES,),
        pool_size=len(pool),
        pool_sha256=pool_digest(pool),
        deadline_s=60.0,
        coordinator="centre",
        ends="2999-12-31",
    )
    return DeployedStudy(
        name="benchmark",
        classes=2,
        votes=TeacherVotes(
            mechanism=ConfidentGNMax(sigma=1000.0, sigma_threshold=1000.0, threshold=0.0),
            view="label",
            teachers=1,
            query_limit=len(pool),
            batch_limit=QUERIES,
            answer_rate=1.0,
            stop="first-exhausted",
            participation_name="all",
        ),
        unit="record",
        accountant_name="label_only",
        quorum=parties,
        confidentiality=Clear(),
        roster=tuple(seats),
        terms=terms,
    )


def vote(batch: QueryBatch) -> np.ndarray:
    return (batch.inputs[:, 0] > 0).astype(np.int64)[None, :]


def serve_nodes(folder: Path, first: int, last: int) -> None:
    """Runs the nodes of some parties until standard input is closed."""
    study, stop = read_deployed(folder / "study.toml"), threading.Event()
    authority = certificate_from_pem((folder / "authority.pem").read_bytes())
    threads = []
    for number in range(first, last):
        name = f"h{number}"
        ledger = Ledger(folder / f"{name}.sqlite")
        party = Party(name, study=study, ledger=ledger, voter=vote, coins_from=None)
        node = Node(
            key=private_key_from_pem((folder / f"{name}.key").read_bytes()),
            certificate=certificate_from_pem((folder / f"{name}.pem").read_bytes()),
            authority=authority,
            address=(folder / "address").read_text(),
            seats=partial(list, [ServedSeat(study, party, ledger, anchor=lambda: None)]),
            save_certificate=lambda pem: None,
            on_event=lambda event, fields: None,
            renew_days_left=0,
        )
        threads.append(threading.Thread(target=node.run, args=(stop,)))
        threads[-1].start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()


def measure(parties: int, processes: int) -> dict[str, float]:
    """Median seconds of a round and of its votes alone, over ROUNDS batches; memory in MiB."""
    pool = np.random.default_rng(1).standard_normal((QUERIES * (2 * ROUNDS + 2), FEATURES)).astype(np.float32)
    study = study_of(parties, pool)
    now = datetime.datetime.now(datetime.UTC)
    authority_key, key = new_key(), new_key()
    authority = new_authority(authority_key, name="benchmark", now=now, days=2)

    def certify(public_key: object, name: str, role: str) -> bytes:
        return to_pem(
            issue(
                authority=authority, authority_key=authority_key, public_key=public_key, name=name, role=role, now=now,
                days=1,
            )
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.toml").write_text(write_study(study))
        (folder / "authority.pem").write_bytes(to_pem(authority))
        for seat in study.roster:
            theirs = new_key()
            (folder / f"{seat.party}.key").write_bytes(key_to_pem(theirs))
            (folder / f"{seat.party}.pem").write_bytes(certify(theirs.public_key(), seat.party, "party"))
        hub = Hub(
            key=key,
            certificate=certificate_from_pem(certify(key.public_key(), "centre", "coordinator")),
            authority=authority,
            denied=lambda identity: None,
            renew=lambda identity, request: b"",
            enrol=lambda message: Enrolled(b"", "pending", ""),
            on_event=lambda event, fields: None,
        )
        port, _ = hub.start(listen="127.0.0.1:0", enrol_listen=None)
        (folder / "address").write_text(f"127.0.0.1:{port}")
        edges = np.linspace(0, parties, processes + 1).astype(int)
        nodes = [
            subprocess.Popen(
                [sys.executable, __file__, "--serve", str(folder), str(low), str(high)], stdin=subprocess.PIPE
            )
            for low, high in itertools.pairwise(edges)
        ]
        try:
            ledger = Ledger(folder / "coordinator.sqlite")
            transport = hub.open_study(study, ledger)
            missing = hub.wait_for(frozenset(seat.party for seat in study.roster), timeout_s=300)
            if missing:
                raise SystemExit(f"{len(missing)} nodes did not connect within 300 s")
            memory_of = psutil.Process(nodes[0].pid).memory_full_info()
            idle, own = memory_of.rss / 2**20, memory_of.uss / 2**20
            votes: list[float] = []
            times = []
            coordinator = Coordinator(
                study,
                ledger=ledger,
                aggregation=ClearAggregation(cryptographic(system_source)),
                exchange=_timed(transport, votes),
                run=os.urandom(16),
            )
            start = time.perf_counter()

            def batch_done(batches: Sequence[tuple[int, int]]) -> None:
                times.append(time.perf_counter())

            processes_of = [psutil.Process(), *(psutil.Process(node.pid) for node in nodes)]
            busy_before = [_processor_s(each) for each in processes_of]
            coordinator.label(pool[: QUERIES * (ROUNDS + 1)], on_batch=batch_done)
            spent = np.subtract([_processor_s(each) for each in processes_of], busy_before) / (ROUNDS + 1)
            each = np.diff([start, *times])[1:]
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            busy = psutil.Process(nodes[0].pid).memory_info().rss / 2**20
            ledger.close()
        finally:
            for node in nodes:
                node.communicate(timeout=60)
            hub.stop()
    return {
        "round": float(np.median(each)),
        "votes": float(np.median(votes[2:])),
        "coordinator_s": float(spent[0]),
        "nodes_s": float(spent[1:].sum()),
        "in_process": in_process(study, pool),
        "coordinator": memory,
        "idle": idle,
        "own": own,
        "busy": busy,
    }


def _processor_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


def _timed(transport, votes):
    """The transport, with the seconds of every vote exchange."""

    def exchange(requests):
        start = time.perf_counter()
        replies = transport(requests)
        if any(isinstance(request, VoteRequest) for request in requests.values()):
            votes.append(time.perf_counter() - start)
        return replies

    return exchange


def in_process(study: DeployedStudy, pool: np.ndarray) -> float:
    """Median seconds of the same rounds with parties as objects and ledgers in memory."""
    parties = {
        seat.party: Party(seat.party, study=study, ledger=Ledger(":memory:"), voter=vote, coins_from=None)
        for seat in study.roster
    }
    times = [time.perf_counter()]
    Coordinator(
        study,
        ledger=Ledger(":memory:"),
        aggregation=ClearAggregation(cryptographic(system_source)),
        exchange=InProcessTransport({name: party.handle for name, party in parties.items()}),
        run=b"",
    ).label(pool[: QUERIES * (ROUNDS + 1)], on_batch=lambda batches: times.append(time.perf_counter()))
    return float(np.median(np.diff(times)[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs=3, metavar=("FOLDER", "FIRST", "LAST"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve_nodes(Path(given.serve[0]), int(given.serve[1]), int(given.serve[2]))
        return
    for parties, processes in ((5, 5), (250, 5), (250, 25)):
        found = measure(parties, processes)
        print(
            f"{parties} parties in {processes} processes, {QUERIES} queries of {FEATURES} float32: "
            f"votes {1e3 * found['votes']:.0f} ms, whole round {1e3 * found['round']:.0f} ms "
            f"(in one process {1e3 * found['in_process']:.0f} ms); processor time of a round: coordinator "
            f"{1e3 * found['coordinator_s']:.0f} ms, all nodes {1e3 * found['nodes_s']:.0f} ms; "
            f"coordinator {found['coordinator']:.0f} MiB, "
            f"a node's process idle {found['idle']:.0f} MiB, {found['own']:.0f} of them its own, after "
            f"{found['busy']:.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
