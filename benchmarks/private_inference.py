"""Confidential queries over three processes on loopback: guardian, querying and answering party; time and bytes.

    python benchmarks/private_inference.py [--rtt-ms 40] [--queries 100] [--spu]

`dealt` is from the querying party's request until both have the guardian's randomness; `prepared` is the exchange of
masked weights, which needs no query; `online` is from queries to shares of votes. With --rtt-ms each message waits half
of it on arrival. Medians of the repetitions; a first batch warms up. The votes are checked against plain arithmetic.

--spu adds SPU Cheetah, which needs no guardian, over TLS between two processes of the interpreter that
CONCLAVE_SPU_PYTHON names: seconds inside the computation, on loopback whatever --rtt-ms says.
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
from ipaddress import ip_address
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

import protocols.inference
from protocols.aggregation.two_server.field import P
from protocols.aggregation.two_server.shares import expand_guardian
from protocols.identity import key_to_pem, new_key, to_pem
from protocols.inference.answerer import Answerer
from protocols.inference.architecture import Precision
from protocols.inference.dealer import deal
from protocols.inference.fixed_point import QuantisedModel, agreement, plain_inference, quantise
from protocols.inference.material import Arrays
from protocols.inference.model import AveragePool, Convolution, Dense, Model, ReLU, float_inference
from protocols.inference.querier import Querier
from protocols.inference.spu_files import asking_share, private_arrays, public_json
from protocols.messages import decode_arrays, encode_arrays
from protocols.randomness import system_source

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
            "trips": model.architecture.round_trips, "agreement": agreement(model_of(name), model, inputs)
        }  # fmt: skip
    for process in others:
        process.join(timeout=10)
    return found


def measure_spu(names: list[str], queries: int, repeats: int) -> dict[str, tuple[float, float, float]]:
    """SPU Cheetah by model: ms of the first run, median ms of later ones, agreement with floats."""
    interpreter = os.environ.get("CONCLAVE_SPU_PYTHON")
    if not interpreter:
        raise SystemExit("CONCLAVE_SPU_PYTHON is not set; allowed: the interpreter of an environment with spu 0.9.5")
    program = Path(protocols.inference.__file__).parent / "spu_program" / "infer.py"
    # One thread is our rule for NumPy; SPU may take as many as there are.
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    found = {}
    for name in names:
        model = model_of(name)
        inputs = np.random.default_rng(0).random((queries, 28, 28), dtype=np.float32)
        masks = np.random.default_rng(1).integers(0, P, (queries, 10), dtype=np.uint32)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            certify(folder)
            (folder / "public.json").write_text(public_json(model, queries))
            np.savez(folder / "asking.npz", inputs=inputs)
            np.savez(folder / "answering.npz", **private_arrays(model, masks))
            ports = [f"--{role}=127.0.0.1:{free_port()}" for role in SPU_ROLES]
            shared = [f"--{what}={folder / file}" for what, file in SPU_FILES.items()]
            running = [
                subprocess.Popen(
                    [
                        interpreter, str(program), f"--role={role}", *ports, *shared, f"--repeats={repeats}",
                        f"--input={folder / role}.npz", f"--output={folder / role}-out.npz",
                    ],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
                )
                for role in SPU_ROLES
            ]  # fmt: skip
            if any([process.wait(timeout=600) for process in running]):
                raise SystemExit("SPU failed; run infer.py by hand to see why")
            outputs = [np.load(folder / f"{role}-out.npz") for role in SPU_ROLES]
            share = asking_share(outputs[0]["share"], outputs[1]["share"])
            labels = ((share.astype(np.int64) + masks) % P).argmax(axis=1)
            first, *later = (outputs[0]["seconds"] * 1e3).tolist()
        agrees = float(np.mean(labels == float_inference(model, inputs)))
        found[name] = (first, statistics.median(later), agrees)
    return found


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
    masks, _, _ = expand_guardian(seeds, queries=queries, classes=classes, context=b"")
    votes = (share.astype(np.int64) + masks) % P
    if not (votes[0] == np.eye(classes)[expected]).all():
        raise SystemExit("private votes differ from plain inference")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Time and bytes of confidential queries to one party.")
    parser.add_argument("--rtt-ms", type=float, default=0.0, help="round trip that is added, in ms")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--spu", action="store_true", help="SPU Cheetah as well")
    options = parser.parse_args()
    found = measure(options.models, options.queries, options.repeats + 1, options.rtt_ms / 1e3)
    print(f"{options.queries} queries, {options.rtt_ms:g} ms of round trip; times in ms, data in kB")
    print(
        f"{'model':<8}{'dealt':>8}{'prepared':>10}{'online':>8}{'sum':>8}{'guardian':>10}{'answerer':>10}{'trips':>7}"
        f"{'G->A':>9}{'Q->A':>8}{'A->Q':>8}{'agrees':>8}"
    )
    for name, row in found.items():
        total = row["dealt"] + row["prepared"] + row["online"]
        print(
            f"{name:<8}{row['dealt']:>8.1f}{row['prepared']:>10.1f}{row['online']:>8.1f}{total:>8.1f}{row['dealing']:>10.1f}"
            f"{row['answering']:>10.1f}{row['trips']:>7.0f}{row['to_answerer'] / 1e3:>9.0f}{row['asked'] / 1e3:>8.0f}"
            f"{row['answered'] / 1e3:>8.0f}{row['agreement']:>8.2f}"
        )
    if options.spu:
        print(f"\n{'model':<8}{'guardian deals':>15}{'SPU, first':>12}{'SPU, warm':>11}{'ratio':>8}{'SPU agrees':>12}")
        compared = measure_spu(options.models, options.queries, options.repeats + 1)
        for name, (first, warm, agrees) in compared.items():
            total = sum(found[name][part] for part in ("dealt", "prepared", "online"))
            print(f"{name:<8}{total:>15.1f}{first:>12.0f}{warm:>11.0f}{warm / total:>8.1f}{agrees:>12.2f}")


if __name__ == "__main__":
    main()
