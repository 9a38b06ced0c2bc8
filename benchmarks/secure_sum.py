"""Masked sums over real processes on loopback: seconds of a party and of the coordinator, bytes, and the whole sum.

    OMP_NUM_THREADS=1 python benchmarks/secure_sum.py [--parties 250] [--dropouts 25] [--colluders 25 13]
        [--queries 1000] [--classes 10] [--round-trip-ms 0 40] [--batches 3] [--hosts 2]

One process is the coordinator (SummedAggregation), the others host the parties (Party, SummedBallot, a ledger in
memory), over TCP. A message is read half a round trip after it was sent. Drop-outs leave before their masked votes,
which costs the coordinator most. Milliseconds of a step are of the processor. "level" is what secure_sum does for a
party, on average, for the least and for the most; "noise" the drawing of its share of the noise; "rest" messages,
charge and ledger, which every level has. The first batch is apart: in it the key of each pair is agreed on, once a
process. "X25519" is the mean of one agreement in microseconds, timed between requests; a party makes two a neighbour,
and a machine that does other things takes longer for all of it. Each opened sum must be the plain sum of what its
survivors masked. Half a minute per case.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from party.party import Party
from protocols.crypto.identity import encoded_point
from protocols.crypto.randomness import system_source
from protocols.ledger.ledger import Ledger
from protocols.levels.level import Ballot, ReservedBatch
from protocols.levels.secure_sum import aggregation as summed_votes
from protocols.levels.secure_sum import ballot as summed_ballot
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.levels.secure_sum.terms import context_of
from protocols.mechanisms import GNMax
from protocols.study.levels import SecureSum
from protocols.study.queries import QueryBatch
from protocols.study.study import Seat, Study
from protocols.study.votes import TeacherVotes
from protocols.wire.messages import Reply, Request, StepRequest, VoteRequest, decode, encode

STEPS = ("sum_keys", "sum_shares", "sum_check", "vote", "sum_agree", "sum_open")
REPORT, STOP = "report", b"stop"
# Nobody waits longer for the other side.
LIMIT_S = 60.0
# Timed between two requests.
AGREEMENTS = 3


@dataclass(frozen=True)
class Case:
    """What is measured."""

    parties: int
    dropouts: int
    colluders: int
    queries: int
    classes: int
    round_trip_ms: float
    batches: int
    hosts: int

    def key(self, position: int) -> ec.EllipticCurvePrivateKey:
        return ec.derive_private_key(1000 + position, ec.SECP256R1())

    def study(self) -> Study:
        """Loose budgets and little noise: neither changes what a sum costs."""
        roster = tuple(
            Seat(party=f"hospital-{position}", epsilon=40.0, delta=1e-5, weight=1.0, rate=1.0)
            for position in range(self.parties)
        )
        keys = tuple(encoded_point(self.key(position).public_key()) for position in range(self.parties))
        return Study(
            name="benchmark", classes=self.classes, unit="record", accountant_name="gaussian", roster=roster,
            votes=TeacherVotes(
                mechanism=GNMax(sigma=40.0), view="histogram", teachers=1, query_limit=self.batches * self.queries,
                batch_limit=self.queries, answer_rate=1.0, stop="first-exhausted", participation_name="all",
            ),
            quorum=self.parties - self.dropouts,
            confidentiality=SecureSum(units=64, colluders=self.colluders, seat_keys=keys),
        )  # fmt: skip

    def seats(self, host: int) -> range:
        """The seats of one host."""
        return range(host, self.parties, self.hosts)

    def leaves(self, position: int) -> bool:
        """Whether a seat is a drop-out: they are spread over the roster, and so over the hosts."""
        return (position + 1) * self.dropouts // self.parties > position * self.dropouts // self.parties


class Link:
    """Messages over TCP, each with its length and the time it was sent, read half a round trip later."""

    def __init__(self, connected: socket.socket, round_trip_ms: float) -> None:
        connected.settimeout(LIMIT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._delay_s = connected, round_trip_ms / 2000

    def send(self, data: bytes) -> None:
        for part in (struct.pack("<Qd", len(data), time.monotonic()), data):
            self._socket.sendall(part)

    def recv(self) -> bytearray:
        size, sent_at = struct.unpack("<Qd", self._exactly(16))
        data = self._exactly(size)
        time.sleep(max(0.0, sent_at + self._delay_s - time.monotonic()))
        return data

    def _exactly(self, size: int) -> bytearray:
        view = memoryview(data := bytearray(size))
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise ConnectionError("the other side closed the connection")
            view = view[got:]
        return data


class Timed(Ballot):
    """A ballot that counts the seconds of the level, and those of its noise among them."""

    def __init__(self, inner: SummedBallot) -> None:
        self.inner, self.seconds = inner, 0.0

    def step(self, request):
        return self._timed(self.inner.step, request)

    def cast(self, request, votes):
        given = votes(None)
        return self._timed(self.inner.cast, request, lambda _: given)

    def _timed(self, work, *given):
        start = time.thread_time()
        try:
            return work(*given)
        finally:
            self.seconds += time.thread_time() - start

    def settle(self, outcome, sent):
        return self.inner.settle(outcome, sent)


class Listening:
    """What a host overhears in its own process: the values that are masked, and the seconds of their noise."""

    def __init__(self) -> None:
        self.total, self.noise = np.int64(0), 0.0
        draw, mask = summed_ballot.integer_gaussian, summed_ballot.party.mask

        def timed_draw(*given, **named):
            start = time.thread_time()
            try:
                return draw(*given, **named)
            finally:
                self.noise += time.thread_time() - start

        def heard_mask(secret, context, index, request, values, *, noted, authenticator):
            self.total = self.total + values
            return mask(secret, context, index, request, values, noted=noted, authenticator=authenticator)

        summed_ballot.integer_gaussian, summed_ballot.party.mask = timed_draw, heard_mask


def host(case: Case, number: int, port: int) -> None:
    """The process of some parties: answers rounds of requests, and tells after each batch what they took."""
    study, listening = case.study(), Listening()
    parties: dict[int, tuple[Party, Timed]] = {}
    for position in case.seats(number):
        name, ledger = study.roster[position].party, Ledger(":memory:")
        ballot = Timed(SummedBallot(study, name, ledger=ledger, key=case.key(position), source=system_source))
        votes = np.random.default_rng(position).integers(0, case.classes, (1, study.query_limit))
        voter = {"voter": lambda batch, votes=votes: votes[:, batch.ids], "coins_from": None}
        parties[position] = Party(name, study=study, ledger=ledger, ballot=ballot, **voter), ballot
    link = Link(socket.create_connection(("127.0.0.1", port)), case.round_trip_ms)
    link.send(b"%05d" % number)
    seconds: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    yardstick = X25519PrivateKey.generate()
    public = yardstick.public_key()
    while (message := link.recv()) != STOP:
        step, requests = unpacked(message)
        if step == REPORT:
            link.send(json.dumps([listening.total.tolist(), seconds]).encode())
            listening.total = np.int64(0)
            seconds.clear()
            continue
        replies = {}
        for position, data in requests.items():
            if step == "vote" and case.leaves(position):
                continue
            member, ballot = parties[position]
            ballot.seconds = listening.noise = 0.0
            start = time.thread_time()
            replies[position] = encode(member.handle(decode(data)))
            took, start = time.thread_time() - start, time.thread_time()
            for _ in range(AGREEMENTS):
                yardstick.exchange(public)
            agreement = (time.thread_time() - start) / AGREEMENTS
            seconds[step].append((ballot.seconds - listening.noise, listening.noise, took - ballot.seconds, agreement))
        link.send(packed(step, replies))


def packed(step: str, messages: Mapping[int, bytes]) -> bytes:
    """The messages of one round of one host, each with its seat."""
    parts = [struct.pack("<16s", step.encode())]
    for position, data in messages.items():
        parts += [struct.pack("<IQ", position, len(data)), data]
    return b"".join(parts)


def unpacked(message: bytearray) -> tuple[str, dict[int, bytes]]:
    messages, at, view = {}, 16, memoryview(message)
    while at < len(message):
        position, size = struct.unpack_from("<IQ", message, at)
        messages[position] = bytes(view[at + 12 : at + 12 + size])
        at += 12 + size
    return message[:16].rstrip(b"\0").decode(), messages


class Hosts:
    """The coordinator's transport. server: seconds of its processor by step; wall: on the clock; sent, received: bytes.

    What is computed between two steps, collecting and new requests, counts for the earlier one; what comes before the
    first, for the first.
    """

    def __init__(self, case: Case, study: Study, links: list[Link]) -> None:
        self.case, self.seats, self.links = case, study.seats, links
        self.start()

    def start(self) -> None:
        self.server, self.wall = dict.fromkeys(STEPS, 0.0), dict.fromkeys(STEPS, 0.0)
        self.sent, self.received, self.step = dict.fromkeys(STEPS, 0), dict.fromkeys(STEPS, 0), STEPS[0]
        self._mark = time.process_time(), time.perf_counter()

    def stop(self) -> None:
        """Counts what the processor did since the last call for the step at hand."""
        now = time.process_time(), time.perf_counter()
        self.server[self.step] += now[0] - self._mark[0]
        self.wall[self.step] += now[1] - self._mark[1]
        self._mark = now

    def __call__(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        first = next(iter(requests.values()))
        step = first.step if isinstance(first, StepRequest) else "vote"
        self.stop()
        self.step = step
        asked = {self.seats[name]: encode(request) for name, request in requests.items()}
        for number, link in enumerate(self.links):
            link.send(packed(step, {seat: asked[seat] for seat in self.case.seats(number) if seat in asked}))
        answered: dict[int, bytes] = {}
        for link in self.links:
            answered |= unpacked(link.recv())[1]
        self.sent[step] = sum(map(len, asked.values())) // len(asked)
        self.received[step] = sum(map(len, answered.values())) // len(answered)
        return {name: decode(answered[self.seats[name]]) if self.seats[name] in answered else None for name in requests}


def run_batch(case: Case, study: Study, hosts: Hosts, number: int) -> None:
    """One sum, and the check that it is the plain sum of what its survivors masked."""
    ids = np.arange(number * case.queries, (number + 1) * case.queries)
    request = VoteRequest(study.digest, b"benchmark", QueryBatch(number, ids, np.zeros((case.queries, 2), np.float32)))
    takes_part = np.ones((case.parties, case.queries), dtype=bool)
    opened, open_sum = [], summed_votes.open_sum

    def heard(*given):
        opened.append(open_sum(*given))
        return opened[-1]

    with Ledger(":memory:") as ledger, patch.object(summed_votes, "open_sum", heard):
        reserved = ReservedBatch(study, ledger, request, tuple(study.seats), takes_part, None, hosts)
        hosts.start()
        counted = SummedAggregation().count(reserved)
        hosts.stop()
    assert counted.labels is not None, counted.left_out
    assert len(counted.voted) == case.parties - case.dropouts, counted.left_out
    reports = []
    for link in hosts.links:
        link.send(packed(REPORT, {}))
        reports.append(json.loads(link.recv()))
    np.testing.assert_array_equal(opened[0].sums, np.sum([total for total, _ in reports], axis=0))
    show(number, hosts, {step: np.array([row for _, rows in reports for row in rows[step]]) for step in STEPS})


def show(number: int, hosts: Hosts, seconds: Mapping[str, np.ndarray]) -> None:
    """One batch, in milliseconds and bytes a party."""
    print(f"\n  batch {number + 1}{' (with the keys of pairs)' if number == 0 else ''}")
    heads = ("level", "least", "most", "noise", "rest", "X25519 us", "sends", "receives", "coordinator", "wall")
    print(f"  {'step':<11}" + "".join(f"{head:>12}" for head in heads))
    rows = []
    for step in STEPS:
        level, noise, rest, agreement = seconds[step].mean(axis=0)
        least, most = seconds[step][:, 0].min(), seconds[step][:, 0].max()
        times = 1e3 * np.array([level, least, most, noise, rest, 1e3 * agreement])
        rows.append([*times, hosts.received[step], hosts.sent[step], 1e3 * hosts.server[step], 1e3 * hosts.wall[step]])
    total = np.sum(rows, axis=0)
    total[5] /= len(STEPS)
    for name, row in zip((*STEPS, "all"), (*rows, total), strict=True):
        print(f"  {name:<11}" + "".join(f"{value:12.2f}" for value in row[:5]), end="")
        print("".join(f"{value:12,.0f}" for value in row[5:]), flush=True)


def run(case: Case) -> None:
    """Prints one case."""
    study = case.study()
    context = context_of(study, bytes(32), queries=case.queries)
    print(f"\n{case.parties} parties x {context.cells:,} cells, {case.dropouts} drop-outs, {case.colluders} colluders,")
    print(f"round trip {case.round_trip_ms:g} ms: {context.graph.degree} neighbours, quorum {context.quorum}; ", end="")
    print(f"{case.hosts} hosts, load {os.getloadavg()[0]:.1f}")
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(LIMIT_S)
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=host, args=(case, number, listening.getsockname()[1]), daemon=True)
        for number in range(case.hosts)
    ]
    for process in processes:
        process.start()
    links = [Link(listening.accept()[0], case.round_trip_ms) for _ in processes]
    links = [link for _, link in sorted((link.recv(), link) for link in links)]  # hosts say their number first
    hosts = Hosts(case, study, links)
    for number in range(case.batches):
        run_batch(case, study, hosts, number)
    for link, process in zip(hosts.links, processes, strict=True):
        link.send(STOP)
        process.join(LIMIT_S)


def main() -> None:
    """Runs every number of colluders with every round trip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"parties": 250, "dropouts": 25, "queries": 1000, "classes": 10, "batches": 3, "hosts": 2}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--colluders", type=int, nargs="+", default=[25, 13])
    parser.add_argument("--round-trip-ms", type=float, nargs="+", default=[0.0, 40.0])
    flags = vars(parser.parse_args())
    for colluders, round_trip_ms in itertools.product(flags.pop("colluders"), flags.pop("round_trip_ms")):
        run(Case(**flags, colluders=colluders, round_trip_ms=round_trip_ms))


if __name__ == "__main__":
    main()
