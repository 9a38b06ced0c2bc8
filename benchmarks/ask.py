"""A whole `conclave-party ask` over real processes on loopback: wall by stage and bytes, with and without a round trip.

    OMP_NUM_THREADS=1 python benchmarks/ask.py [--parties 3] [--queries 100] [--teacher mlp] [--rtt-ms 0 40]

Operator, guardian and every hospital are processes that their own commands started, with ledgers on disk and mutual
TLS. The one that asks is this process, which runs the command itself.

`dealing` is its conversation with the guardian before the votes, `counting` the one after them; `inference` is the
steps that the operator relays, with the arithmetic between them, `votes` the last steps, which are charged; `outcomes`
is telling the parties, `training` the hospital's own model, before and after. The rest is the first contact with the
guardian, files and ledgers. Starting Python and its packages is not included.

A process in between delivers every byte half of the round trip later: between the operator and each party, the operator
and the one that asks, the guardian and the one that asks. So a step to a party takes two round trips, and without one
there is a hop all the same. Bytes are those on the wire of the one that asks, TLS included.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import contextlib
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any  # figures of several kinds

from asked_processes import ASKER, AskedProcesses, called
from between import run_between

from party.asking import asking, report
from party.commands.group import run_command
from protocols.crypto.channel import Channel
from protocols.levels.hidden_queries.querier import PrivateQueries
from protocols.study.study import Study
from protocols.wire.messages import Reply, Request, StepRequest, VoteRequest


class Stages:
    """Seconds of the stages of one `ask` in this process, taken at its edges."""

    NAMES = ("dealing", "inference", "votes", "counting", "outcomes", "training")

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.steps = 0
        self._voted = False

    def run(self, arguments: list[str]) -> float:
        """Runs the command; its whole time."""
        relayed, dial, improve = asking.Relayed, asking._dial, report.improve
        compute, stages = PrivateQueries._compute, self

        class Timed(relayed):  # type: ignore[misc, valid-type]  # a class that is found at run time
            def __call__(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
                kind = {type(each) for each in requests.values()}
                if kind == {StepRequest}:
                    stages.steps += 1  # timed with the arithmetic in between
                    return super().__call__(requests)
                stages._voted = kind == {VoteRequest}
                with stages.timed("votes" if stages._voted else "outcomes"):
                    return super().__call__(requests)

        @contextlib.contextmanager
        def dialled(study: Study, line: asking.AskingLine) -> Iterator[Channel]:
            with stages.timed("counting" if stages._voted else "dealing"), dial(study, line) as channel:
                yield channel

        def computed(*given: object) -> None:
            before = stages.seconds["dealing"]
            with stages.timed("inference"):
                compute(*given)
            stages.seconds["inference"] -= stages.seconds["dealing"] - before

        def improved(*given: object, **named: object) -> object:
            with stages.timed("training"):
                return improve(*given, **named)

        asking.Relayed, asking._dial, report.improve = Timed, dialled, improved
        PrivateQueries._compute = computed
        try:
            began = time.perf_counter()
            called(run_command, arguments)
            return time.perf_counter() - began
        finally:
            asking.Relayed, asking._dial, report.improve = relayed, dial, improve
            PrivateQueries._compute = compute

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - began


def measure(options: argparse.Namespace, rtt_ms: float) -> tuple[Stages, float, list[list[int]], dict[str, Any]]:
    """One consortium, set up and asked once: stages, the whole time, bytes, and the report's figures."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        consortium = AskedProcesses(
            folder, parties=options.parties, queries=options.queries, batch=options.batch, features=options.features,
            teacher=options.teacher, quorum=options.parties,
        )  # fmt: skip
        here, there = multiprocessing.get_context("spawn").Pipe()
        targets = [consortium.hub, consortium.guardian, consortium.hub]
        between = multiprocessing.get_context("spawn").Process(target=run_between, args=(targets, rtt_ms / 2000, there))
        between.start()
        try:
            to_hub, to_guardian, to_parties = here.recv()
            for name in [*consortium.names, ASKER]:
                invitation = folder / name / "invitation.toml"
                route = to_hub if name == ASKER else to_parties
                text = invitation.read_text(encoding="utf-8")
                invitation.write_text(text.replace(f'"{consortium.hub}"', f'"{route}"'), encoding="utf-8")
            consortium.start_all()
            stages = Stages()
            whole = stages.run(consortium.words(guardian=to_guardian))
            here.send(True)
            moved = here.recv()
            here.send(False)
            figures = json.loads((folder / "labels.report.json").read_text(encoding="utf-8"))
        finally:
            consortium.stop()
            between.join(10)
            between.kill()
    return stages, whole, moved, figures


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, default=3)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--teacher", choices=("logistic_regression", "mlp"), default="mlp")
    parser.add_argument("--rtt-ms", type=float, nargs="+", default=[0.0, 40.0])
    options = parser.parse_args()
    print(
        f"{options.parties} parties with a {options.teacher} of {options.features} features, {options.queries} queries "
        f"in batches of {options.batch}; seconds, and kB of the one that asks"
    )
    print(
        f"{'rtt ms':>6}{'whole':>8}"
        + "".join(f"{name:>10}" for name in (*Stages.NAMES, "rest"))
        + f"{'steps':>7}{'to op.':>8}{'from':>7}{'to gdn.':>9}{'from':>8}"
    )
    report.check_model("logistic_regression")  # imports its packages, which is not what is timed
    for rtt_ms in options.rtt_ms:
        stages, whole, moved, figures = measure(options, rtt_ms)
        if figures["asked"] != options.queries or figures["left_out"]:
            raise SystemExit(f"only {figures['asked']} queries were asked, without {figures['left_out']}")
        parts = [stages.seconds[name] for name in Stages.NAMES]
        traffic = [count / 1e3 for way in moved[:2] for count in way]
        print(
            f"{rtt_ms:>6g}{whole:>8.2f}"
            + "".join(f"{part:>10.2f}" for part in (*parts, whole - sum(parts)))
            + f"{stages.steps:>7}{traffic[0]:>8.0f}{traffic[1]:>7.0f}{traffic[2]:>9.0f}{traffic[3]:>8.0f}"
        )


if __name__ == "__main__":
    main()
