"""Real processes on loopback that are killed at random moments: coordinator, guardian, hospitals and whoever asks.

    python -m tests.harness.kills --kills 100 --seed 1

Every level in turn; only processes that it started are ended, and it stops by itself. Afterwards each study is ended,
its release verified, and the ledgers of all sides are compared. Prints what was killed, as JSON.
"""

import argparse
import contextlib
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.asked_processes import ASKER, AskedProcesses
from party.demo.demo_data import HOSPITALS, DemoData, demo_data, demo_study
from protocols.crypto.identity import encoded_point, new_key
from protocols.ledger.ledger import Ledger
from protocols.study.levels import LEVELS, SecureSum
from tests.harness.local_consortium import ConsortiumHere

# A guard against hanging, for one kill with what follows it.
STEP_S = 300.0
# After a batch was released, the next kill comes within so many seconds.
WITHIN_S = 0.15
ENDED = ("finished", "labelled")
SERVERS = ("centre", "guardian", "notary", "ask")


class SummedConsortium(ConsortiumHere):
    """The demo's consortium at level secure_sum: `study create` names the keys of the hospitals that have joined."""

    def _files(self) -> None:
        super()._files()
        file = self.folder / "study.toml"
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(line for line in lines if "signing_key" not in line), encoding="utf-8")


def released(ledger: Path) -> dict[int, bytes]:
    """What a ledger's file says is released: read-only, beside the process that writes."""
    if not ledger.exists():
        return {}
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=300) as database:
        made = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'batch'").fetchone()
        if made is None:  # its process is about to make the tables
            return {}
        return dict(database.execute("SELECT number, payload FROM batch WHERE settled").fetchall())


def ledger_of(folder: Path, name: str) -> Path | None:
    """A side's ledger of the one study."""
    found = [*(folder / name / "studies").glob("*/ledger*.sqlite"), *(folder / name / "studies").glob("*/asked.sqlite")]
    return found[0] if found else None


class Kills:
    """Kills of one level, and what was released so far, which must never change."""

    def __init__(self, folder: Path, level: str, draw: random.Random, done: Counter[str]) -> None:
        self.folder, self.level, self.draw, self.done = folder, level, draw, done
        self.seen: dict[int, bytes] = {}

    def check_released(self, side: str) -> int:
        """How many batches are released; raises AssertionError if one was released otherwise before."""
        path = ledger_of(self.folder, side)
        for number, payload in ({} if path is None else released(path)).items():
            assert self.seen.setdefault(number, payload) == payload, "released otherwise"
        return len(self.seen)

    def run(self, victims: list[str], kills: int, side: str, kill: Callable[[str], None], over) -> None:
        """So many kills, of each victim in turn, each after a batch was released since the last; fewer if it ends."""
        for at in range(kills):
            before, deadline = self.check_released(side), time.monotonic() + STEP_S
            while self.check_released(side) <= before and not over():
                assert time.monotonic() < deadline, "the study did not go on"
                time.sleep(0.02)
            if over():
                return
            time.sleep(self.draw.uniform(0, WITHIN_S))
            victim = victims[at % len(victims)]
            kill(victim)
            self.done[
                f"{self.level}: {victim if victim in ('centre', 'guardian', 'notary', 'ask') else 'hospital'}"
            ] += 1


def kill(process: subprocess.Popen) -> None:
    """SIGKILL to a process of ours."""
    process.kill()
    process.wait()


def consortium_of(folder: Path, level: str, data: DemoData, *, kinds=(ConsortiumHere, SummedConsortium), **terms):
    """The demo's consortium at a level, of which three hospitals are a quorum, asked a query at a time. kinds: of it,
    elsewhere and at secure_sum; terms: of its study, that differ."""
    study = replace(demo_study(data).voting(batch_limit=1), quorum=3)
    # As many queries as the pool has; real-valued noise, at level clear, needs a smaller epsilon.
    epsilon = 12.0 if level == "clear" else 40.0
    roster = tuple(replace(seat, epsilon=epsilon) for seat in study.roster)
    study = replace(study, roster=roster, terms=replace(study.terms, **terms))
    if level == "secure_sum":
        keys = tuple(encoded_point(new_key().public_key()) for _ in study.roster)
        secret = SecureSum(units=64, colluders=0, seat_keys=keys)
        study = replace(
            study, confidentiality=secret, votes=replace(study.votes, view="histogram"), accountant_name="gaussian"
        )
    made = kinds[level == "secure_sum"](folder, data, study, say=lambda line: None)
    if level == "two_server":
        made.add_guardian()
    return made


def labelled(
    folder: Path, level: str, kills: int, draw: random.Random, done: Counter[str], *, pool: int | None = None
) -> None:
    """Kills while a coordinator labels; then the study is finished, released, verified and audited. pool: how many of
    the demo's queries [all]."""
    data = demo_data(None)
    made = consortium_of(folder, level, replace(data, pool=data.pool[:pool]))
    victims = ["centre", *(["guardian"] if level == "two_server" else []), *HOSPITALS]
    at_level = Kills(folder, level, draw, done)

    def kill_and_start(victim: str) -> None:
        kill(made.processes[victim])
        made.start(victim)

    def over() -> bool:
        return json.loads(made.coordinator("status", "--json"))["studies"][0]["state"] in ENDED

    try:
        made.set_up()
        for name in HOSPITALS:
            made.start(name)
        made.coordinator("label", "demo")
        at_level.run(victims, kills, "centre", kill_and_start, over)
        made.finish()  # verifies the release, and every hospital's audit of it
    finally:
        made.stop()
    done[f"{level}: batches"] = at_level.check_released("centre")
    compare(folder, "centre", "guardian" if level == "two_server" else "", list(HOSPITALS))


def asked(folder: Path, kills: int, draw: random.Random, done: Counter[str]) -> None:
    """Kills while a hospital asks; then the same command ends it."""
    made = AskedProcesses(folder, queries=2 * kills + 10, batch=1, quorum=2)
    at_level = Kills(folder, "hidden_queries", draw, done)
    asking: list[subprocess.Popen] = []

    def ask() -> None:
        with (folder / "ask.log").open("ab") as log:
            words = [sys.executable, "-m", "party", *made.words()]
            asking[:] = [subprocess.Popen(words, stdout=log, stderr=log)]

    def kill_and_start(victim: str) -> None:
        if victim == "ask":
            kill(asking[0])
            return ask()
        kill(made.processes[victim])
        made.start(victim)
        return None

    def over() -> bool:
        code = asking[0].poll()
        if code is not None and code != 0:  # it said why, and what to do: run it again
            done[f"hidden_queries: ask ended with {code}"] += 1
            ask()
        return code == 0

    try:
        made.start_all()
        ask()
        at_level.run(["ask", "centre", "notary", *made.names], kills, ASKER, kill_and_start, over)
        deadline = time.monotonic() + STEP_S
        while not over():
            assert time.monotonic() < deadline, "asking did not end"
            time.sleep(0.1)
    finally:
        for process in asking:
            kill(process)
        made.stop()
    done["hidden_queries: batches"] = at_level.check_released(ASKER)
    compare(folder, ASKER, "notary", made.names)


def compare(folder: Path, centre: str, guardian: str, hospitals: list[str]) -> None:
    """Raises AssertionError unless nobody charged less than was released, or more than a cap."""
    with contextlib.ExitStack() as opened:
        own = opened.enter_context(Ledger(ledger_of(folder, centre)))
        charged = own.balances()
        list(own.log.entries())
        asked_once = [query for number in range(10**4) for query in own.queries(number)]
        assert len(asked_once) == len(set(asked_once)), "a query was asked in two batches"
        if guardian:
            other = opened.enter_context(Ledger(ledger_of(folder, guardian)))
            list(other.log.entries())
            for number in (at for at in range(10**4) if own.stored(at) is not None and own.stored(at).settled):
                assert other.settled(number) == own.settled(number), "the servers charged a batch differently"
        for name in hospitals:
            ledger = opened.enter_context(Ledger(ledger_of(folder, name)))
            list(ledger.log.entries())
            balance = ledger.balance(name)
            assert charged[name].settled <= balance.spent <= balance.cap, "spent and not recorded, or above a cap"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, required=True, help="of all levels together")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    given = parser.parse_args()
    draw, done = random.Random(given.seed), Counter[str]()
    each = -(-given.kills // len(given.levels))
    for level in given.levels:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            if level == "hidden_queries":
                asked(Path(folder), each, draw, done)
            else:
                labelled(Path(folder), level, each, draw, done)
        done[f"{level}: seconds"] = round(time.monotonic() - began)
    kills = sum(
        count
        for what, count in done.items()
        if what.split(": ")[1] in ("centre", "guardian", "notary", "ask", "hospital")
    )
    print(json.dumps({"kills": kills, **dict(sorted(done.items()))}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
