"""Two servers over loopback, each a process with one thread: seconds, bytes and memory of each step.

    OMP_NUM_THREADS=1 python benchmarks/two_server.py [--parties 250] [--queries 1000] [--classes 10] [--rtt-ms 0]
        [--mechanism thresholded_gnmax|gnmax] [--repeats 1]
    OMP_NUM_THREADS=1 python benchmarks/two_server.py --grow

--rtt-ms delivers each message half of that after it was sent. --grow runs a quarter, a half, the whole and twice the
queries: the ratios of their times say how the cost grows. --repeats runs the mechanisms named, in turn, so often, and
prints the median and range of each. Every label is compared with a plain computation.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import resource
import socket
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeVar

import numpy as np

from protocols.crypto.discrete_gaussian import lattice_sigma
from protocols.crypto.randomness import system_source
from protocols.crypto.rings import check_counting_ring
from protocols.errors import ChannelClosed, MalformedMessage
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.agreement import coordinator_opens, guardian_opens
from protocols.levels.two_server.batch_notes import BatchNotes, OpenedBatches
from protocols.levels.two_server.circuit_inputs import CircuitInputs, InputCheck, circuit_inputs
from protocols.levels.two_server.keyed_shares import KeyedShares
from protocols.levels.two_server.noise_pool import NoiseLaw, noise_of
from protocols.levels.two_server.noisy_argmax import coordinator_evaluates, guardian_evaluates
from protocols.levels.two_server.one_time_masks import PinnedExchange, masks_hold
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare, share_votes
from protocols.levels.two_server.sketch import Ballots, coordinator_checks, guardian_checks
from protocols.votes import ABSTAIN

UNITS, SIGMA = 64, 10.0
MECHANISMS = ("thresholded_gnmax", "gnmax")
CONTEXT = b"benchmark"
# Of both servers' noise, so that every label can be compared with a plain computation.
SEEDS = bytes([1]) * 32, bytes([2]) * 32
T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """What is measured."""

    parties: int
    queries: int
    classes: int
    rtt_ms: float
    mechanism: str


class SocketChannel:
    """Messages over TCP, each with its length and the time it was sent."""

    def __init__(self, connected: socket.socket, delay_s: float) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._delay_s = delay_s
        self.sent = 0

    def send(self, data: bytes) -> None:
        self.sent += len(data)
        self._socket.sendall(struct.pack("<Qd", len(data), time.monotonic()))
        self._socket.sendall(data)

    def recv(self, limit: int) -> bytes:
        size, sent_at = struct.unpack("<Qd", self._exactly(16))
        if size > limit:
            raise MalformedMessage(f"message has {size} bytes; allowed: at most {limit}")
        data = self._exactly(size)
        time.sleep(max(0.0, sent_at + self._delay_s - time.monotonic()))
        return data

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise ChannelClosed("the other side closed the channel")
            view = view[got:]
        return bytes(data)


class Stopwatch:
    """Seconds of each step, on the clock and of this process."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[float, float]] = {}

    def of(self, name: str, work: Callable[[], T]) -> T:
        start, used = time.perf_counter(), time.process_time()
        result = work()
        self.rows[name] = time.perf_counter() - start, time.process_time() - used
        return result


def votes_and_weights(case: Case) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    leaders = rng.integers(0, case.classes, case.queries)
    others = rng.integers(0, case.classes, (case.parties, case.queries))
    votes = np.where(rng.random(others.shape) < 0.6, leaders, others)
    return votes, rng.integers(UNITS // 2, 2 * UNITS, case.parties)


def law_of(case: Case) -> NoiseLaw:
    return NoiseLaw(lattice_sigma(SIGMA, units=UNITS), case.classes)


def threshold_of(case: Case) -> int | None:
    return None if case.mechanism == "gnmax" else round(0.6 * case.parties * UNITS)


def shares_of(case: Case, votes: np.ndarray) -> tuple[CoordinatorShare, GuardianShare]:
    """Both servers derive what the parties sent, so that no array need be passed between processes."""
    source = np.random.default_rng(3).bytes
    pairs = [share_votes(row[None], classes=case.classes, context=CONTEXT, source=source) for row in votes]
    return CoordinatorShare.of_all([pair[0] for pair in pairs]), GuardianShare.of_all([pair[1] for pair in pairs])


def coordinator(case: Case, port: int, report: Connection) -> None:
    votes, weights = votes_and_weights(case)
    ballots = Ballots(np.ones(votes.shape, dtype=bool), case.classes, False, CONTEXT)
    watch = Stopwatch()
    share = watch.of("shares", lambda: shares_of(case, votes)[0])
    channel = SocketChannel(socket.create_connection(("127.0.0.1", port)), case.rtt_ms / 2000)
    channel.recv(1)
    valid = watch.of(
        "check", lambda: coordinator_checks(channel, share, ballots, secret=system_source(32), pin=unpinned)
    )
    keyed = KeyedShares.of_coordinator(share, ballots)
    valid, inputs, checked = bound(case, channel, watch, keyed, ballots, weights, valid, leads=True)
    opened = watch.of(
        "noisy argmax",
        lambda: coordinator_opens(
            channel,
            inputs.sizes,
            notes=notes(),
            evaluate=lambda: coordinator_evaluates(channel, inputs, source=system_source),
        ),
    )
    report.send((watch.rows, checked, channel.sent, peak_mb(), valid.all(), opened.labels))


def guardian(case: Case, listening: socket.socket, report: Connection) -> None:
    votes, weights = votes_and_weights(case)
    ballots = Ballots(np.ones(votes.shape, dtype=bool), case.classes, False, CONTEXT)
    source = np.random.default_rng(3).bytes
    # As share_votes draws them: the guardian's seed, then the coordinator's.
    share = GuardianShare(np.stack([np.frombuffer(source(32), np.uint8)[:16] for _ in range(case.parties)]))
    connected, _ = listening.accept()
    channel = SocketChannel(connected, case.rtt_ms / 2000)
    channel.send(b"")
    watch = Stopwatch()
    valid = watch.of("check", lambda: guardian_checks(channel, share, ballots, secret=system_source(32), pin=unpinned))
    keyed = KeyedShares.of_guardian(share, ballots)
    valid, inputs, checked = bound(case, channel, watch, keyed, ballots, weights, valid, leads=False)
    opened = watch.of(
        "noisy argmax",
        lambda: guardian_opens(
            channel,
            inputs.sizes,
            notes=notes(),
            evaluate=lambda: guardian_evaluates(channel, inputs, source=system_source),
        ),
    )
    report.send((watch.rows, checked, channel.sent, peak_mb(), valid.all(), opened.signed))


def bound(
    case: Case, channel: SocketChannel, watch: Stopwatch, keyed: KeyedShares, ballots: Ballots, weights: np.ndarray,
    valid: np.ndarray, *, leads: bool,
) -> tuple[np.ndarray, CircuitInputs, int]:  # fmt: skip
    """(who counts, this server's inputs, what it had sent when both masks and inputs were checked)."""
    exchange = PinnedExchange(channel, leads=leads, pin=unpinned)
    secret = system_source(32)
    held = watch.of(
        "masks", lambda: masks_hold(exchange, keyed.masks, keyed.keys, secret=secret, digest=ballots.digest)
    )
    counted = weights[:, None] * np.ones(case.queries, dtype=np.int64)
    check = InputCheck(keyed, counted, law_of(case), seed=SEEDS[0 if leads else 1], digest=ballots.digest)
    entered = watch.of("inputs", lambda: check.run(exchange))
    inputs = circuit_inputs(
        entered, leads=leads, threshold=threshold_of(case), total_units=int(weights.sum()), masked=False
    )
    return valid & held, inputs, channel.sent


def unpinned(step: str, value: bytes) -> None:
    """Keeps nothing: there is one attempt."""


def notes() -> BatchNotes:
    """Of a ledger that is not kept."""
    ledger, other = Ledger(":memory:"), "the other server"
    return BatchNotes(ledger, b"request", 0, other, OpenedBatches(ledger, b"study", other=other))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plain_labels(case: Case) -> np.ndarray:
    votes, weights = votes_and_weights(case)
    counts = np.zeros((case.queries, case.classes), dtype=np.int64)
    for row, weight in zip(votes, weights, strict=True):
        counts[np.arange(case.queries), row] += weight
    noisy, threshold = counts + sum(noise_of(SEEDS, law_of(case), queries=case.queries)), threshold_of(case)
    if threshold is None:
        return noisy.argmax(axis=1)
    return np.where((noisy >= threshold).any(axis=1), noisy.argmax(axis=1), ABSTAIN)


def run(case: Case) -> tuple[float, float, float]:
    """Prints one case; gives the servers' seconds on the clock, those of both processors, and MB between them."""
    tail = check_counting_ring(
        total_units=2 * UNITS * case.parties, threshold_units=threshold_of(case), sigma_units=SIGMA * UNITS,
        classes=case.classes, queries=case.queries,
    )  # fmt: skip
    spawn = multiprocessing.get_context("spawn")
    listening = socket.create_server(("127.0.0.1", 0))
    ends = [spawn.Pipe() for _ in range(2)]
    port = listening.getsockname()[1]
    processes = [
        spawn.Process(target=guardian, args=(case, listening, ends[1][1])),
        spawn.Process(target=coordinator, args=(case, port, ends[0][1])),
    ]
    for process in processes:
        process.start()
    ours, theirs = (end[0].recv() for end in ends)
    for process in processes:
        process.join()
    labels = ours[5]
    assert ours[4]
    assert theirs[4]
    assert (labels == plain_labels(case)).all()
    assert (theirs[5] == labels).all()
    print(
        f"{case.mechanism}: {case.parties} parties, {case.queries} queries, {case.classes} classes, round trip "
        f"{case.rtt_ms:g} ms; {(labels != ABSTAIN).mean():.0%} answered, outside the ring {tail:.0e}"
    )
    print(f"  a party's shares: {1e3 * ours[0].pop('shares')[0] / case.parties:.2f} ms")
    total, processors = 0.0, 0.0
    for step, (took, used) in ours[0].items():
        other = theirs[0][step]
        total += max(took, other[0])
        processors += used + other[1]
        print(f"  {step:<13} {took:7.3f} s   processor: coordinator {used:6.3f} s, guardian {other[1]:6.3f} s")
    for name, (_, checked, sent, peak, _, _) in (("coordinator", ours), ("guardian", theirs)):
        print(
            f"  {name:<12} sent {checked / 1e6:6.2f} MB for the checks, {sent / 1e6:7.2f} MB in all; peak {peak:.0f} MB"
        )
    sent = (ours[2] + theirs[2]) / 1e6
    print(f"  in all        {total:7.3f} s, {processors:.3f} s of both processors, {sent:.1f} MB between", flush=True)
    return total, processors, sent


def main() -> None:
    """Runs what the flags say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, default=250)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rtt-ms", type=float, default=0.0)
    parser.add_argument("--mechanism", choices=MECHANISMS, action="append", help="may be given several times")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--grow", action="store_true")
    flags = parser.parse_args()
    parts = (1, 2, 4, 8) if flags.grow else (4,)
    mechanisms = flags.mechanism or MECHANISMS[:1]

    def case(part: int, mechanism: str) -> Case:
        return Case(flags.parties, flags.queries * part // 4, flags.classes, flags.rtt_ms, mechanism)

    if flags.repeats > 1:
        results: dict[str, list[tuple[float, float, float]]] = {mechanism: [] for mechanism in mechanisms}
        for _ in range(flags.repeats):
            for mechanism in mechanisms:
                results[mechanism].append(run(case(4, mechanism)))
        print(
            f"medians of {flags.repeats} (least to most); load {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors"
        )
        for mechanism, rows in results.items():
            said = [
                f"{statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})"
                for each in zip(*rows, strict=True)
            ]
            print(f"  {mechanism:<18} {said[0]} s, {said[1]} s of both processors, {rows[0][2]:.1f} MB")
        return
    times = [run(case(part, mechanisms[0]))[:2] for part in parts]
    for earlier, later in itertools.pairwise(times):
        clock, processors = (after / before for before, after in zip(earlier, later, strict=True))
        print(f"twice the queries: {clock:.2f} times the seconds, {processors:.2f} times those of the processors")


if __name__ == "__main__":
    main()
