"""What record votes cost in seconds and bytes: contributions, the study's noise and weights, and the sum at each level.

    OMP_NUM_THREADS=1 python benchmarks/record_votes_cost.py [--parties 250] [--records 60000] [--features 784]
        [--queries 1000] [--classes 10] [--nearest 1] [--dropouts 25] [--colluders 13] [--levels clear,two_server]
        [--mnist DATA [--residuals]]

Everything runs in one process, with a Party and a ledger in memory for each party; records are random and sparse, as
images are, and vote in cells. With --mnist they are MNIST's training images and vote with graded features, those that
a run has with a pool of 1,000 test images; with --residuals they are asked twice. Seconds are of the processor and of
one core: of all parties together for contributions, of the mean party, of the coordinator and of the guardian for the
sum. MB are those of the encoded messages: what a party sends and receives in all, and what passes between the
servers. What is opened is held against the plain sum: the largest difference in standard deviations of the noise is
printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coordinator.in_process import InProcessTransport
from coordinator.queries.choice import GRADED, QueryChoice, make_queries
from party.party import Party
from protocols.crypto.channel import Channel
from protocols.features.feature_map import FeatureMap
from protocols.labelling import guardian as guardian_module
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.simulated import simulated_ballot, simulated_level
from protocols.study.levels import TwoServer
from protocols.study.record_study import ANY_SIGNED, RecordVotesPlan, record_study
from protocols.study.released_noise import noise_of_mean
from protocols.study.study import Study
from protocols.sums.blocks import Blocks, Nearest
from protocols.sums.residuals import FirstScores
from protocols.wire.messages import Reply, Request, encode
from simulations.datasets import load
from simulations.datasets.dataset import DatasetRequest
from simulations.stages.label import simulated_aggregation
from simulations.stages.record_votes import cells_of_holdings, contributions

UNITS = 64
SEED = 1


def main() -> None:
    """Contributions, then each level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (
        ("parties", 250), ("records", 60_000), ("features", 784), ("queries", 1000), ("classes", 10), ("nearest", 1),
        ("dropouts", 25), ("colluders", 13),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--levels", default="clear,secure_sum,two_server")
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--residuals", action="store_true")
    asked = parser.parse_args()
    records, labels, queries = _mnist(asked) if asked.mnist else _random(asked)
    holdings = [(records[each], labels[each], None) for each in np.array_split(np.arange(asked.records), asked.parties)]
    print(
        f"{asked.parties} parties, {asked.records} records of {records[0].size} features, {queries.rows} queries x "
        f"{asked.classes} classes, each record votes in {queries.filled}"
    )
    for level in asked.levels.split(","):
        _study(asked, queries, level)  # imports and tables are read once
        study, planned = of_processor(lambda level=level: _study(asked, queries, level))
        sums, counted = of_processor(lambda study=study: contributions(study, queries, holdings))
        print(f"\n{level}: sigma {study.gaussian.sigma:.4g} votes")
        print(f"  noise and weights               {1e3 * planned:8.1f} ms")
        print(f"  contributions of all parties    {counted:8.2f} s")
        again = None
        if asked.residuals:
            drawn = np.random.default_rng(SEED).normal(size=(queries.rows, asked.classes))
            first, stored = FirstScores.of(drawn), cells_of_holdings(study, queries, holdings)
            residuals, counted = of_processor(partial(stored.residuals, study, first))
            print(f"  residuals of all parties        {counted:8.2f} s")
            again = first.to_bytes(), residuals
        opened(study, sums, again)


def _study(asked: argparse.Namespace, queries: Blocks, level: str) -> Study:
    kind = simulated_level(
        level,
        units=TwoServer.graded_units(asked.records) if queries.signed else UNITS,
        colluders=asked.colluders if level == "secure_sum" else None,
        seats=asked.parties,
    )
    plan = RecordVotesPlan(
        name="benchmark", classes=asked.classes, unit="record", population=asked.records, queries=queries,
        rule="exhaustive", level=kind, quorum=asked.parties - asked.dropouts, residuals=asked.residuals,
    )  # fmt: skip
    study = record_study(
        plan,
        names=[f"hospital-{at}" for at in range(asked.parties)],
        epsilon=np.resize([1.0, 2.0, 3.0], asked.parties),
        delta=np.full(asked.parties, 1e-5),
    )
    held = -(-asked.records // asked.parties)
    return replace(study, roster=tuple(replace(seat, population=held) for seat in study.roster))


def _random(asked: argparse.Namespace) -> tuple[ndarray, ndarray, Blocks]:
    rng = np.random.default_rng(SEED)
    shape = (asked.records, asked.features)
    records = (rng.random(shape, np.float32) * (rng.random(shape, np.float32) < 0.2)).astype(np.float32)
    labels = rng.integers(0, asked.classes, asked.records)
    block = Nearest.of(records[: asked.queries], columns=np.arange(asked.features), nearest=asked.nearest)
    return records, labels, Blocks(FeatureMap((asked.features,)), (block,))


def _mnist(asked: argparse.Namespace) -> tuple[ndarray, ndarray, Blocks]:
    data = load("mnist", DatasetRequest(data_dir=asked.mnist, seed=SEED, private_size=asked.records, public_size=1000))
    queries = make_queries(
        data.public_inputs,
        (),
        QueryChoice(kind=GRADED),
        population=asked.records,
        classes=data.classes,
        noise=noise_of_mean(_study(asked, ANY_SIGNED, "clear")),
    )
    return data.private_inputs, data.private_labels, queries


def of_processor(work: Callable) -> tuple:
    """What it returns, and the seconds of this process's processor."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


class Meter:
    """Seconds of the parties and of the guardian, and bytes."""

    def __init__(self) -> None:
        self.party, self.guardian = 0.0, 0.0
        self.to_party, self.from_party, self.between = 0, 0, 0

    def handler(self, party: Party) -> Callable[[Request], Reply]:
        def handle(request: Request) -> Reply:
            self.to_party += len(encode(request))
            start = time.thread_time()
            reply = party.handle(request)
            self.party += time.thread_time() - start
            self.from_party += len(encode(reply))
            return reply

        return handle

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Counts what guardians of this process work and what passes to and from them."""
        serve = guardian_module.Guardian.serve

        def timed(guardian: guardian_module.Guardian, channel: Channel) -> None:
            start = time.thread_time()
            try:
                serve(guardian, _Counted(channel, self))
            finally:
                self.guardian += time.thread_time() - start

        guardian_module.Guardian.serve = timed
        try:
            yield
        finally:
            guardian_module.Guardian.serve = serve


class _Counted:
    """A channel that counts bytes both ways."""

    def __init__(self, channel: Channel, meter: Meter) -> None:
        self._channel, self._meter = channel, meter

    def send(self, data: bytes) -> None:
        self._meter.between += len(data)
        self._channel.send(data)

    def recv(self, limit: int) -> bytes:
        data = self._channel.recv(limit)
        self._meter.between += len(data)
        return data

    def close(self) -> None:
        self._channel.close()


def opened(
    study: Study, sums: list[Int64[ndarray, "queries classes"]], again: tuple[bytes, list[ndarray]] | None
) -> None:
    """Runs the one batch, or both, and prints their costs. again: the scores of the second, and its sums."""
    model, residuals = (b"", sums) if again is None else again
    meter, ledgers = Meter(), [Ledger(":memory:") for _ in study.roster]
    parties = {
        seat.party: Party(
            seat.party,
            study=study,
            ledger=ledgers[at],
            voter=lambda batch, at=at: (residuals if batch.model else sums)[at],
            coins_from=None,
            ballot=simulated_ballot(study, at, ledger=ledgers[at], seed=SEED),
        )
        for at, seat in enumerate(study.roster)
    }
    with Ledger(":memory:") as own, Ledger(":memory:") as guardians, meter.guarded():
        coordinator = Coordinator(
            study,
            ledger=own,
            aggregation=simulated_aggregation(study, guardians=guardians, seed=SEED),
            exchange=InProcessTransport({name: meter.handler(party) for name, party in parties.items()}),
            run=bytes(16),
        )
        pool = np.zeros((study.query_limit, 0), np.float32)
        labelling, used = of_processor(lambda: coordinator.label(pool))
        if again is not None:
            _, more = of_processor(lambda: coordinator.ask_again(model))
            used += more
    number = len(study.roster)
    print(f"  a party                         {1e3 * meter.party / number:8.1f} ms")
    print(f"  the coordinator                 {used - meter.party - meter.guardian:8.2f} s")
    if meter.guardian:
        print(f"  the guardian                    {meter.guardian:8.2f} s")
    sent, received = (each / number / 1e6 for each in (meter.from_party, meter.to_party))
    print(f"  a party sends, receives         {sent:8.3f} MB, {received:.3f} MB")
    if meter.between:
        print(f"  between the servers             {meter.between / 1e6:8.3f} MB")
    noise = (labelling.cells - np.sum(sums, axis=0)) / (study.gaussian.sigma * study.units)
    print(f"  noise of the sum: deviation {noise.std():.3f} sigma, largest {np.abs(noise).max():.2f} sigma", flush=True)


if __name__ == "__main__":
    main()
