"""Two servers over loopback that authenticate what they will put into the circuit: seconds and bytes of each step.

    OMP_NUM_THREADS=1 python -m benchmarks.authenticated_inputs.measure [--parties 250] [--queries 1000] [--classes 10]
        [--rtt-ms 0] [--sigma 10] [--repeats 1]

This is a prototype that no program uses; docs/decisions/ says what is missing. Votes' shares are dealt at random, not
by parties, since only their sizes matter here; what a party adds to its upload is measured by itself. Both servers
check that they end with the counts, and with macs that fit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import socket
import time
from dataclasses import dataclass
from fractions import Fraction
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.authenticated_inputs.bit_tags import evaluator_secret, evaluator_tags, garbler_secret, garbler_tags
from benchmarks.authenticated_inputs.input_check import Bound, InputCheck, Transfers
from benchmarks.authenticated_inputs.linear_macs import Held, Kept
from benchmarks.authenticated_inputs.masks import (
    REPETITIONS,
    KeyedShares,
    MaskShares,
    MaskTest,
    coordinator_masks,
    deal_masks,
    guardian_masks,
)
from benchmarks.authenticated_inputs.noise_pool import NoiseLaw
from benchmarks.two_server import SocketChannel
from protocols.crypto.field import BITS, P, minus, plus, times
from protocols.crypto.hashing import LabelHash
from protocols.crypto.randomness import system_source

UNITS = 64
LARGEST_MESSAGE = 2**31
CONTEXT = b"benchmark"
MASK_STEPS = ("promise", "result", "finish")
INPUT_STEPS = ("agree", "enter", "draw", "open", "promise", "result", "finish")


@dataclass(frozen=True)
class Case:
    """What is measured."""

    parties: int
    queries: int
    classes: int
    rtt_ms: float
    sigma: float


def dealt(case: Case) -> tuple[np.ndarray, np.ndarray, list[KeyedShares], list[MaskShares], list[np.ndarray]]:
    """Votes, weights, and what each server has of the votes, of the masks and of the keys."""
    rng = np.random.default_rng(1)
    shape = (case.parties, REPETITIONS, case.queries)
    votes = np.eye(case.classes, dtype=np.uint32)[rng.integers(0, case.classes, (case.parties, case.queries))]
    keys = rng.integers(0, P, shape).astype(np.uint32)
    whole = [votes, votes[:, None] * keys[..., None], keys]
    ours = [rng.integers(0, P, each.shape).astype(np.uint32) for each in whole]
    theirs = [minus(each, share) for each, share in zip(whole, ours, strict=True)]
    seeds = rng.integers(0, 256, (2, case.parties, 16)).astype(np.uint8)
    sent = deal_masks(keys, seeds[0], seeds[1], CONTEXT)
    masks = [
        MaskShares(coordinator_masks(seeds[0], case.queries, CONTEXT), sent),
        guardian_masks(seeds[1], case.queries, CONTEXT),
    ]
    weights = np.repeat(rng.integers(UNITS // 2, 2 * UNITS, (case.parties, 1)), case.queries, axis=1)
    shares = [
        KeyedShares(*parts, mask.masks[0], mask.keyed[0]) for parts, mask in zip((ours, theirs), masks, strict=True)
    ]
    return votes, weights, shares, masks, [ours[2], theirs[2]]


class Exchange:
    """Sends a message and gives the other's; the coordinator's goes first, and both then work at the same time."""

    def __init__(self, channel: SocketChannel, *, first: bool) -> None:
        self._channel, self._first = channel, first
        self.waited_s = 0.0

    def of(self, message: bytes) -> bytes:
        start = time.perf_counter()
        if self._first:
            self._channel.send(message)
        answer = self._channel.recv(LARGEST_MESSAGE)
        if not self._first:
            self._channel.send(message)
        self.waited_s += time.perf_counter() - start
        return answer


def server(case: Case, first: bool, connecting: socket.socket | int, report: Connection) -> None:
    """One server's process."""
    votes, weights, all_shares, all_masks, all_keys = dealt(case)
    at = 0 if first else 1
    if isinstance(connecting, int):
        connected = socket.create_connection(("127.0.0.1", connecting))
    else:
        connected, _ = connecting.accept()
    channel = SocketChannel(connected, case.rtt_ms / 2000)
    exchange = Exchange(channel, first=first)
    exchange.of(b"")
    rows: dict[str, tuple[float, float, float]] = {}

    def measured(name: str, start: float, used: float, sent: int) -> None:
        rows[name] = time.perf_counter() - start, time.process_time() - used, (channel.sent - sent) / 1e6

    start, used, sent = time.perf_counter(), time.process_time(), channel.sent
    test = MaskTest(all_masks[at], all_keys[at], coin=bytes(32), first=first, salt=system_source(32))
    answer = exchange.of(test.open())
    for step in MASK_STEPS[:-1]:
        answer = exchange.of(getattr(test, step)(answer))
    assert test.finish(answer).all()
    measured("masks tested", start, used, sent)

    start, used, sent = time.perf_counter(), time.process_time(), channel.sent
    law = NoiseLaw((Fraction(case.sigma) * UNITS,), (case.classes,))
    check = InputCheck(
        all_shares[at], weights, law, first=first, secret=system_source(32), digest=bytes(32),
        transfers=Transfers(system_source),
    )  # fmt: skip
    answer = exchange.of(check.commitment())
    for step in INPUT_STEPS[:-1]:
        answer = exchange.of(getattr(check, step)(answer))
    bound = check.finish(answer)
    measured("inputs bound", start, used, sent)

    start, used, sent = time.perf_counter(), time.process_time(), channel.sent
    compare_bits(case, exchange, bound)
    measured("bits compared", start, used, sent)
    counts = bound.held.numbers[: case.queries * case.classes]
    total = plus(counts, np.frombuffer(exchange.of(counts.tobytes()), dtype=np.uint32))
    expected = (votes * weights[..., None].astype(np.uint32)).sum(axis=0)
    assert (total == expected.reshape(-1)).all()
    report.send((rows, exchange.waited_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def compare_bits(case: Case, exchange: Exchange, bound: Bound) -> None:
    """Both servers' bits enter circuits by transfers, of which the labels are dealt here, and are compared."""
    counts = case.queries * case.classes
    used = slice(counts, None)
    held = Held(
        plus(bound.held.numbers[:counts], bound.held.numbers[used]),
        plus(bound.held.macs[:, :counts], bound.held.macs[:, used]),
    )
    kept = Kept(bound.kept.alphas, plus(bound.kept.keys[:, :counts], bound.kept.keys[:, used]))
    doubled = plus(held.numbers, held.numbers)
    bits = (doubled >> np.arange(BITS, dtype=np.uint32)[:, None] & 1).astype(bool)
    # As if the transfers had been made: the labels depend on a seed that both know, which a server would not.
    rng, hashing = np.random.default_rng(2), LabelHash(bytes(16))
    zeros = rng.integers(0, 2**64, (BITS, counts, 2), dtype=np.uint64)
    offset = np.array([12_345, 678], dtype=np.uint64)
    keys, message = garbler_tags(zeros, offset, kept.alphas, hashing, first=0)
    theirs = np.frombuffer(exchange.of(message), dtype="<u4").reshape(REPETITIONS, BITS, counts)
    tags = evaluator_tags(zeros ^ (bits[..., None] * offset), bits, theirs, hashing, first=0)
    secrets = evaluator_secret(tags, held), garbler_secret(keys, kept, times(held.numbers, np.zeros(1, np.uint32)))
    assert exchange.of(secrets[0]) == secrets[1]


def run(case: Case) -> None:
    """Prints one case."""
    print(f"{case.parties} parties, {case.queries} queries, {case.classes} classes, round trip {case.rtt_ms:g} ms")
    keys, seeds = np.ones((1, REPETITIONS, case.queries), dtype=np.uint32), np.zeros((2, 1, 16), dtype=np.uint8)
    start = time.perf_counter()
    added = deal_masks(keys, seeds[0], seeds[1], CONTEXT).nbytes
    print(f"  a party adds {added / 1e3:.1f} kB to its upload, {1e3 * (time.perf_counter() - start):.2f} ms")
    spawn = multiprocessing.get_context("spawn")
    listening = socket.create_server(("127.0.0.1", 0))
    ends = [spawn.Pipe() for _ in range(2)]
    port = listening.getsockname()[1]
    processes = [
        spawn.Process(target=server, args=(case, False, listening, ends[1][1]), name="guardian"),
        spawn.Process(target=server, args=(case, True, port, ends[0][1]), name="coordinator"),
    ]
    for process in processes:
        process.start()
    (ours, _, peak), (theirs, _, other_peak) = (end[0].recv() for end in ends)
    for process in processes:
        process.join()
    for step, (took, used, sent) in ours.items():
        other = theirs[step]
        print(
            f"  {step:<14} {max(took, other[0]):6.3f} s   processor: coordinator {used:6.3f} s, guardian "
            f"{other[1]:6.3f} s; {sent:7.2f} MB and {other[2]:7.2f} MB"
        )
    total = sum(max(ours[step][0], theirs[step][0]) for step in ours)
    sent = sum(row[2] for rows in (ours, theirs) for row in rows.values())
    print(f"  in all         {total:6.3f} s, {sent:.1f} MB; peak {peak:.0f} MB and {other_peak:.0f} MB", flush=True)


def main() -> None:
    """Runs what the flags say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, default=250)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rtt-ms", type=float, default=0.0)
    parser.add_argument("--sigma", type=float, default=10.0, help="votes")
    parser.add_argument("--repeats", type=int, default=1)
    flags = parser.parse_args()
    for _ in range(flags.repeats):
        run(Case(flags.parties, flags.queries, flags.classes, flags.rtt_ms, flags.sigma))
    print(f"load {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
