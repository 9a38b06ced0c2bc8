"""Confidential queries over three processes on loopback: guardian, querying and answering party; time and bytes.

    CONCLAVE_SPU_PYTHON=SPU/bin/python python benchmarks/private_inference.py [--rtt-ms 0 40] [--queries 100]

One table, a row for each round trip and model, times in ms, data in kB. With a guardian that deals: `dealt` is from the
querying party's request until both have the guardian's randomness; `prepared` is the exchange of masked weights, which
needs no query; `online` is from queries to shares of votes; `sum` is all three. Each message waits half a round trip on
arrival. Medians of the repetitions; a first batch warms up. Votes are checked against plain arithmetic.

Beside it SPU Cheetah, which needs no guardian, over TLS between two processes of the interpreter that
CONCLAVE_SPU_PYTHON names: ms inside the computation, of the first run and the median of later ones; bytes come half a
round trip later by a process in between. Without the interpreter its columns are empty.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import datetime
import multiprocessing
import socket
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from ipaddress import ip_address
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from between import run_between
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID
from float_inference import agreement, float_inference
from spu.spu_files import asking_share, private_arrays, public_json

from protocols.crypto.field import P
from protocols.crypto.identity import key_to_pem, new_key, to_pem
from protocols.crypto.randomness import system_source
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.computing import Answerer, Querier, deal
from protocols.levels.hidden_queries.inference.model import (
    AveragePool,
    Convolution,
    Dense,
    Model,
    QuantisedModel,
    ReLU,
    plain_inference,
    quantise,
)
from protocols.levels.hidden_queries.inference.plan import InferencePlan
from protocols.levels.two_server.shares import guardian_votes
from protocols.wire.messages import Arrays, decode_arrays, encode_arrays

MODELS = ("linear", "mlp", "cnn")
SPU_ROLES = ("asking", "answering")
SPU_FILES = {
    "authority": "certificate.pem", "certificate": "certificate.pem", "key": "key.pem", "architecture": "public.json",
}  # fmt: skip


def model_of(name: str) -> Model:
    """A model with random weights for images of 28 x 28 and 10 classes; the same in every process."""
    rng = np.random.default_rng(1)

    def dense(inputs: int, outputs: int) -> Dense:
        return Dense(rng.normal(size=(outputs, inputs)) / np.sqrt(inputs), rng.normal(size=outputs) / 50)

    def convolution(channels: int, filters: int, kernel: int, stride: int) -> Convolution:
        kernels = rng.normal(size=(filters, channels, kernel, kernel)) / (kernel * np.sqrt(channels))
        return Convolution(kernels, rng.normal(size=filters) / 50, stride=stride, padding="same")

    if name == "linear":
        return Model((28, 28), (dense(784, 10),))
    if name == "mlp":
        return Model((28, 28), (dense(784, 128), ReLU(), dense(128, 10)))
    return Model(
        (28, 28),
        (
            convolution(1, 8, 5, 2), ReLU(), AveragePool(2),
            convolution(8, 16, 3, 1), ReLU(), dense(784, 10),
        ),
    )  # fmt: skip


def quantised(name: str) -> QuantisedModel:
    """Its integers."""
    return quantise(model_of(name), Precision())


class Link:
    """Named arrays over a socket. Each message waits half a round trip on arrival."""

    def __init__(self, end: socket.socket, rtt_s: float) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._end, self._rtt_s = end, rtt_s
        self._file = end.makefile("rb", buffering=1 << 20)
        self.sent = self.got = 0

    def send(self, name: str, arrays: Arrays) -> None:
        body = encode_arrays(list(arrays))
        head = name.encode().ljust(32) + len(body).to_bytes(8, "little")
        self._end.sendall(head + body)
        self.sent += len(head) + len(body)

    def recv(self) -> tuple[str, Arrays]:
        head = self._file.read(40)
        body = self._file.read(int.from_bytes(head[32:], "little"))
        self.got += len(head) + len(body)
        if self._rtt_s:
            time.sleep(self._rtt_s / 2)
        return head[:32].decode().strip(), tuple(decode_arrays(body))


def listen(told: Connection) -> socket.socket:
    """A socket whose port is told to the process that started this one."""
    server = socket.create_server(("127.0.0.1", 0))
    told.send(server.getsockname()[1])
    return server


def guardian(told: Connection, names: list[str], queries: int, repeats: int, rtt_s: float) -> None:
    """Deals one batch after another: the answering party's part first, over a connection of its own."""
    with listen(told) as server:
        answerer = Link(server.accept()[0], rtt_s)
        querier = Link(server.accept()[0], rtt_s)
        for name in names:
            architecture = quantised(name).architecture
            for _ in range(repeats):
                querier.recv()
                start = time.perf_counter()
                for_querier, for_answerer = deal(architecture, queries, source=system_source)
                took = time.perf_counter() - start
                answerer.send("dealt", for_answerer)
                querier.send("dealt", for_querier)
                told.send((took, answerer.sent))


def answerer(told: Connection, port: int, names: list[str], queries: int, repeats: int, rtt_s: float) -> None:
    """Answers one batch after another, and tells the guardian's share of the votes and its own time of work."""
    with listen(told) as server, socket.create_connection(("127.0.0.1", port)) as upwards:
        dealer = Link(upwards, rtt_s)
        querier = Link(server.accept()[0], rtt_s)
        for name in names:
            model = quantised(name)
            for _ in range(repeats):
                dealt, worked = dealer.recv()[1], 0.0
                start = time.perf_counter()
                party = Answerer(model, queries, dealt, context=b"", source=system_source)
                worked += time.perf_counter() - start
                querier.send("ready", ())
                while not party.finished:
                    request = querier.recv()
                    start = time.perf_counter()
                    reply = party.step(*request)
                    worked += time.perf_counter() - start
                    querier.send("reply", reply)
                told.send((worked, party.guardian_share.seeds))


def measure(names: list[str], queries: int, repeats: int, rtt_s: float) -> dict[str, dict[str, float]]:
    """The querying party: medians of every figure, by model."""
    context = multiprocessing.get_context("spawn")
    (from_guardian, guardians), (from_answerer, answerers) = context.Pipe(False), context.Pipe(False)
    arguments = (names, queries, repeats, rtt_s)
    others = [context.Process(target=guardian, args=(guardians, *arguments))]
    others[0].start()
    port = from_guardian.recv()
    others.append(context.Process(target=answerer, args=(answerers, port, *arguments)))
    others[1].start()
    answerers_port = from_answerer.recv()
    time.sleep(0.3)  # the answering party is the first to reach the guardian
    dealer = Link(socket.create_connection(("127.0.0.1", port)), rtt_s)
    party = Link(socket.create_connection(("127.0.0.1", answerers_port)), rtt_s)
    found = {}
    for name in names:
        model, rows, before = quantised(name), [], 0
        for number in range(repeats):
            inputs = np.random.default_rng(number).random((queries, 28, 28), dtype=np.float32)
            sent, got = party.sent, party.got
            marks = [time.perf_counter()]
            dealer.send("deal", ())
            dealt = dealer.recv()[1]
            party.recv()
            marks.append(time.perf_counter())
            querier = Querier(model.architecture, inputs, dealt)
            request = querier.start()
            while request is not None:
                party.send(*request)
                request = querier.step(party.recv()[1])
                if len(marks) == 2:
                    marks.append(time.perf_counter())
            marks.append(time.perf_counter())
            dealing, total = from_guardian.recv()
            worked, seeds = from_answerer.recv()
            check(querier.share.votes, seeds, plain_inference(model, inputs))
            rows.append(
                [*np.diff(marks) * 1e3, dealing * 1e3, worked * 1e3, total - before, party.sent - sent, party.got - got]
            )
            before = total
        columns = ("dealt", "prepared", "online", "dealing", "answering", "to_answerer", "asked", "answered")
        medians = [statistics.median(column) for column in zip(*rows[1:], strict=True)]
        found[name] = dict(zip(columns, medians, strict=True)) | {
            "trips": len(InferencePlan.of(model.architecture, len(inputs)).exchanges),
            "agreement": agreement(model_of(name), model, inputs),
        }  # fmt: skip
    for process in others:
        process.join(timeout=10)
    return found


@dataclass(frozen=True)
class Compared:
    """SPU Cheetah on one model: ms of the first run and of later ones, kB a run, agreement with floats."""

    first: float
    warm: float
    moved: float
    agreement: float


def measure_spu(interpreter: str, name: str, queries: int, repeats: int, rtt_s: float) -> Compared:
    """Two processes of the other interpreter, which reach each other through a third."""
    model = model_of(name)
    inputs = np.random.default_rng(0).random((queries, 28, 28), dtype=np.float32)
    masks = np.random.default_rng(1).integers(0, P, (queries, 10), dtype=np.uint32)
    own = {role: f"127.0.0.1:{free_port()}" for role in SPU_ROLES}
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    between = context.Process(target=run_between, args=(list(own.values()), rtt_s / 2, there))
    between.start()
    far = dict(zip(SPU_ROLES, here.recv(), strict=True))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        certify(folder)
        (folder / "public.json").write_text(public_json(model, queries))
        np.savez(folder / "asking.npz", inputs=inputs)
        np.savez(folder / "answering.npz", **private_arrays(model, masks))
        running = [start_spu(interpreter, role, far | {role: own[role]}, folder, repeats) for role in SPU_ROLES]
        try:
            failed = any([process.wait(timeout=600) for process in running])
        finally:
            for process in running:
                process.kill()
            here.send(True)
            moved = sum(sum(ways) for ways in here.recv())
            here.send(False)
            between.join(10)
            between.kill()
        if failed:
            raise SystemExit("SPU failed; run infer.py by hand to see why")
        outputs = [np.load(folder / f"{role}-out.npz") for role in SPU_ROLES]
        share = asking_share(outputs[0]["share"], outputs[1]["share"])
        first, *later = (outputs[0]["seconds"] * 1e3).tolist()
    labels = ((share.astype(np.int64) + masks) % P).argmax(axis=1)
    agrees = float(np.mean(labels == float_inference(model, inputs)))
    return Compared(first, statistics.median(later), moved / 1e3 / repeats, agrees)


def start_spu(
    interpreter: str, role: str, addresses: dict[str, str], folder: Path, repeats: int
) -> subprocess.Popen[bytes]:
    """One of the two processes. addresses: where it listens, and where it finds the other."""
    program = Path(__file__).parent / "spu" / "infer.py"
    # One thread is our rule for NumPy; SPU may take as many as there are.
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    ends = [f"--{each}={address}" for each, address in addresses.items()]
    shared = [f"--{what}={folder / file}" for what, file in SPU_FILES.items()]
    files = [f"--input={folder / role}.npz", f"--output={folder / role}-out.npz"]
    command = [interpreter, str(program), f"--role={role}", *ends, *shared, *files, f"--repeats={repeats}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def certify(folder: Path) -> None:
    """One certificate that signs itself, for both ends: a benchmark on loopback."""
    key, now = new_key(), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    day = datetime.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    (folder / "certificate.pem").write_bytes(to_pem(made.sign(key, hashes.SHA256())))
    (folder / "key.pem").write_bytes(key_to_pem(key))


def free_port() -> int:
    """A port of loopback that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def check(share: np.ndarray, seeds: np.ndarray, expected: np.ndarray) -> None:
    """Both shares must make the one-hot votes that plain arithmetic gives."""
    _, queries, classes = share.shape
    masks = guardian_votes(seeds, queries=queries, classes=classes, context=b"")
    votes = (share.astype(np.int64) + masks) % P
    if not (votes[0] == np.eye(classes)[expected]).all():
        raise SystemExit("private votes differ from plain inference")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rtt-ms", type=float, nargs="+", default=[0.0, 40.0], help="round trips, in ms")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7, help="with a guardian")
    parser.add_argument("--spu-repeats", type=int, default=2, help="of SPU, after its first run; 0 leaves it out")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    interpreter = os.environ.get("CONCLAVE_SPU_PYTHON", "") if options.spu_repeats else ""
    print(f"{options.queries} queries to one party; ms and kB, of a guardian that deals and of SPU Cheetah")
    print(
        f"{'rtt':>4} {'model':<7}{'dealt':>7}{'prepared':>9}{'online':>8}{'sum':>8}{'trips':>6}{'G->A':>7}{'Q->A':>7}"
        f"{'A->Q':>7}{'agrees':>7} |{'first':>8}{'warm':>8}{'kB':>8}{'agrees':>7} |{'warm/sum':>9}"
    )
    for rtt_ms in options.rtt_ms:
        found = measure(options.models, options.queries, options.repeats + 1, rtt_ms / 1e3)
        for name, row in found.items():
            total = row["dealt"] + row["prepared"] + row["online"]
            line = (
                f"{rtt_ms:>4g} {name:<7}{row['dealt']:>7.1f}{row['prepared']:>9.1f}{row['online']:>8.1f}{total:>8.1f}"
                f"{row['trips']:>6.0f}{row['to_answerer'] / 1e3:>7.0f}{row['asked'] / 1e3:>7.0f}"
                f"{row['answered'] / 1e3:>7.0f}{row['agreement']:>7.2f} |"
            )
            if interpreter:
                spu = measure_spu(interpreter, name, options.queries, options.spu_repeats + 1, rtt_ms / 1e3)
                line += (
                    f"{spu.first:>8.0f}{spu.warm:>8.0f}{spu.moved:>8.0f}{spu.agreement:>7.2f} |{spu.warm / total:>9.1f}"
                )
            print(line, flush=True)
    if not interpreter:
        print("without SPU: CONCLAVE_SPU_PYTHON does not name the interpreter of an environment with spu 0.9.5")


if __name__ == "__main__":
    main()
