"""One batch between a coordinator and a guardian's process, over gRPC with mutual TLS on loopback, and the line alone.

    OMP_NUM_THREADS=1 python benchmarks/guardian_batch.py [--parties 250] [--queries 1000] [--classes 10] [--rtt-ms 0]

The guardian is `conclave-guardian serve` in a process of its own, with its ledger on disk; what is timed is what a
coordinator waits for once every party has answered: submission, check, garbled circuit, the signature. --rtt-ms puts a
process in between that delivers every byte half of that later. Beside it: 64 MiB through the same line in each
direction, and the seconds of one small message there and back."""

from __future__ import annotations

import argparse
import datetime
import io
import json
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from between import run_between

from coordinator.home import CoordinatorHome, CoordinatorSettings
from coordinator.members import Authority, authority_pem, create_consortium
from coordinator.serving import GuardianLine, dial
from coordinator.store.store import Store
from guardian.home import GuardianHome, GuardianSettings, accept_certificate, approve_study, create_guardian
from guardian.port import GuardianPort
from guardian.serving import serve_guardian
from protocols.crypto.channel import Channel
from protocols.crypto.randomness import system_source
from protocols.ledger.ledger import Ledger
from protocols.levels.level import ReservedBatch
from protocols.levels.simulated import seat_key, seat_keys
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.mechanisms import ThresholdedGNMax
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed
from protocols.study.levels import TwoServer
from protocols.study.queries import QueryBatch
from protocols.study.study import Seat
from protocols.study.terms import Terms
from protocols.study.votes import TeacherVotes
from protocols.wire.guardian import GuardedStudy
from protocols.wire.messages import VoteRequest
from runtime.logs import Log

LARGE = 64 * 2**20
PINGS = 50
NOW = datetime.datetime.now(datetime.UTC)


class Line:
    """What serves for the line alone: keeps what is large, says back what is small."""

    def serve(self, channel: Channel) -> None:
        while (data := channel.recv(LARGE)) != b"end":
            channel.send(bytes(LARGE) if data == b"give" else b"" if len(data) == LARGE else data)


class Counting:
    """A channel that counts the bytes that it moves."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.moved = self.messages = 0

    def send(self, data: bytes) -> None:
        self.moved += len(data)
        self.messages += 1
        self._channel.send(data)

    def recv(self, limit: int) -> bytes:
        data = self._channel.recv(limit)
        self.moved += len(data)
        self.messages += 1
        return data


def study_of(home: GuardianHome, *, parties: int, queries: int, classes: int) -> DeployedStudy:
    """As many parties and queries as are asked for, in one batch."""
    names = tuple(f"class-{number}" for number in range(classes))
    return DeployedStudy(
        name="benchmark",
        classes=classes,
        votes=TeacherVotes(
            mechanism=ThresholdedGNMax(sigma=20.0, threshold=parties / 2),
            view="label",
            teachers=1,
            query_limit=queries,
            batch_limit=queries,
            answer_rate=1.0,
            stop="first-exhausted",
            participation_name="all",
        ),
        unit="record",
        accountant_name="label_only",
        quorum=1,
        confidentiality=TwoServer(
            units=64, abstention=False, guardian="notary", seat_keys=seat_keys(parties), **home.public_keys()
        ),
        roster=tuple(Seat(party=f"p{n}", epsilon=40.0, delta=1e-5, weight=1.0, rate=1.0) for n in range(parties)),
        terms=Terms(
            task="benchmark",
            class_names=names,
            label="label",
            input_shape=(1,),
            pool_size=queries,
            pool_sha256="0" * 64,
            deadline_s=60.0,
            coordinator="centre",
            ends="2999-12-31",
        ),
    )


def certified(folder: Path) -> tuple[CoordinatorHome, GuardianHome]:
    """A coordinator's and a guardian's home."""
    home, guardian = CoordinatorHome(folder / "centre"), GuardianHome(folder / "notary")
    address = "127.0.0.1:1"
    create_consortium(
        home,
        CoordinatorSettings(
            consortium="benchmark", coordinator="centre", listen=address, enrol_listen=address, address=address,
            enrol_address=address,
        ),
    )  # fmt: skip
    settings = GuardianSettings(name="notary", coordinator="centre", listen="127.0.0.1:0", metrics_port=0)
    fingerprint = create_guardian(guardian, settings)
    with Store(home) as store:
        authority = Authority(home, store, home.settings())
        issued = authority.certify_guardian(guardian.request_file.read_bytes(), key_fingerprint=fingerprint)
    accept_certificate(guardian, issued.pem, authority_pem(home), now=NOW)
    return home, guardian


def run_guardian(folder: Path, ports: Connection) -> None:
    """The guardian's process: `conclave-guardian serve`, and a port for the line alone. Ends when `ports` is closed."""
    guardian, stop = GuardianHome(folder), threading.Event()
    (approved,) = (each.name for each in guardian.studies.iterdir())
    study = read_deployed(guardian.studies / approved / "study.toml")
    line = GuardianPort(
        key=guardian.key(),
        certificate=guardian.certificate(),
        authority=guardian.authority(),
        denied=lambda identity: None,
        find=lambda digest: GuardedStudy(study, Line(), threading.Lock()),
        asks=lambda name: name == study.who_asks,
        on_event=lambda event, fields: None,
    )
    out = io.StringIO()
    thread = threading.Thread(target=lambda: serve_guardian(guardian, listen=None, stop=stop, log=Log(out)))
    thread.start()
    while "\n" not in out.getvalue():
        time.sleep(0.01)
    ports.send((json.loads(out.getvalue().partition("\n")[0])["port"], line.start("127.0.0.1:0")))
    with ports:
        ports.poll(None)
    stop.set()
    thread.join()
    line.stop()


@contextmanager
def process(target: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """A process of its own, until the block ends; the connection to it."""
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    running = spawning.Process(target=target, args=(*arguments, there))
    running.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        running.join(10)
        running.kill()


def measure_line(study: DeployedStudy, line: GuardianLine) -> tuple[float, float, float]:
    """MB/s to the guardian, MB/s from it, and milliseconds there and back, after one of each to warm up."""
    with dial(study, line) as channel:
        rates = []
        for question in (bytes(LARGE), b"give"):
            for _ in range(2):
                began = time.monotonic()
                channel.send(question)
                channel.recv(LARGE)
            rates.append(LARGE / 1e6 / (time.monotonic() - began))
        began = time.monotonic()
        for _ in range(PINGS):
            channel.send(b"ping")
            channel.recv(4)
        ping_ms = 1000 * (time.monotonic() - began) / PINGS
        channel.send(b"end")
    return rates[0], rates[1], ping_ms


def measure_batch(study: DeployedStudy, line: GuardianLine, run: int) -> tuple[float, float, int]:
    """Seconds of one whole batch, megabytes between the servers, and messages."""
    queries = np.arange(study.query_limit)
    request = VoteRequest(
        study.digest, bytes([run]) * 16, QueryBatch(0, queries, np.zeros((len(queries), 1), np.float32))
    )
    rng = np.random.default_rng(run)
    truth = rng.integers(0, study.classes, len(queries))
    replies = {}
    for at, seat in enumerate(study.roster):
        votes = np.where(rng.random(len(queries)) < 0.8, truth, rng.integers(0, study.classes, len(queries)))
        replies[seat.party] = SharedBallot(study, seat.party, key=seat_key(at), source=system_source).cast(
            request, lambda _, votes=votes: votes[None]
        )
    channels: list[Counting] = []

    @contextmanager
    def counted() -> Iterator[Channel]:
        with dial(study, line) as channel:
            channels.append(Counting(channel))
            yield channels[-1]

    with Ledger(":memory:") as ledger:
        takes_part = study.participation.votes(queries)
        names = tuple(seat.party for seat in study.roster)
        reserved = ReservedBatch(study, ledger, request, names, takes_part, None, lambda requests: dict(replies))
        began = time.monotonic()
        found = SharedAggregation(counted, source=system_source).count(reserved)
        seconds = time.monotonic() - began
    assert found.labels is not None
    return seconds, channels[0].moved / 1e6, channels[0].messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, default=250)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rtt-ms", type=float, default=0.0)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    print(
        f"{given.parties} parties x {given.queries} queries x {given.classes} classes, {given.rtt_ms:g} ms round trip"
    )
    print(f"{'run':>3}  {'batch s':>8}  {'MB':>7}  {'messages':>8}  {'to MB/s':>8}  {'from MB/s':>9}  {'ping ms':>7}")
    for run in range(given.repeat):
        # A ledger answers each query once: every run has a guardian of its own.
        with tempfile.TemporaryDirectory() as folder:
            home, guardian = certified(Path(folder))
            study = study_of(guardian, parties=given.parties, queries=given.queries, classes=given.classes)
            approve_study(guardian, study, today=NOW.date(), source=system_source)
            with process(run_guardian, guardian.folder) as there:
                addresses = [f"127.0.0.1:{port}" for port in there.recv()]
                with process(run_between, addresses, given.rtt_ms / 2000) as between:
                    if given.rtt_ms:
                        addresses = between.recv()
                    lines = [
                        GuardianLine(
                            address=address,
                            key=home.key(),
                            certificate=home.certificate(),
                            authority=home.authority(),
                            denied=lambda identity: None,
                            now=lambda: datetime.datetime.now(datetime.UTC),
                        )
                        for address in addresses
                    ]
                    seconds, megabytes, messages = measure_batch(study, lines[0], run)
                    to, back, ping_ms = measure_line(study, lines[1])
            print(f"{run:3}  {seconds:8.2f}  {megabytes:7.1f}  {messages:8}  {to:8.0f}  {back:9.0f}  {ping_ms:7.2f}")


if __name__ == "__main__":
    main()
