"""A coordinator, a guardian and five hospitals at hosts of their own, whose links are cut without a word.

    poe hosts --levels clear --seconds 1 60 600

In each phase of a batch, at each level, for each of these times of a clock that is advanced `--by` times: programs wait
for each other so much shorter, and so do the cuts. In turn the link of a hospital, of the coordinator and of the
guardian. Then the coordinator gets another address, a hospital's connection is forgotten by what is between, a link is
slow, one way only, a name does not resolve. Each study is ended, released, verified, and all ledgers compared.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from benchmarks.asked_processes import ASKER, AskedProcesses
from party.demo.demo_data import demo_data
from protocols.ledger.ledger import Ledger
from protocols.study.levels import LEVELS
from tests.harness.clocks import wait_until
from tests.harness.hosts import Hosts, why_not
from tests.harness.kills import ConsortiumHere, SummedConsortium, compare, consortium_of, ledger_of, released

PHASES = ("request", "vote", "outcome", "receipt")
DEADLINE_S, STEP_S, POOL = 60.0, 240.0, 200
# Queries of the study in which a hospital asks: each takes a second.
ASKED = 110


class OnHosts:
    """What is common to both kinds of consortium, once it was set up on loopback."""

    by, hosts, ahead = 1.0, None, {}

    def spread(self, hosts: Hosts, guardian: str) -> None:
        """From here on programs run at their hosts, and reach servers by name."""
        (self.folder / "stops").mkdir()
        self.hosts = hosts
        if isinstance(self, AskedProcesses):
            self.guardian = self.guardian.replace("127.0.0.1", guardian)
        for file in self.folder.rglob("*.toml"):
            text = file.read_text(encoding="utf-8")
            for keys, host in (("listen|enrol_listen", "0.0.0.0"), ("address", "centre"), ("guardian", guardian)):
                text = re.sub(rf'^({keys}) = "127\.0\.0\.1:', rf'\1 = "{host}:', text, flags=re.MULTILINE)
            file.write_text(text, encoding="utf-8")

    def start(self, name: str) -> None:
        if self.hosts is None:
            return super().start(name)
        servers = {"centre": ("coordinator", "serve"), "guardian": ("guardian", "serve")}
        words = self.words() if name == ASKER else [*servers.get(name.replace("notary", "guardian"), ("party", "run"))]
        home = [] if name == ASKER else ["--home", str(self.folder / name)]
        given = {"by": self.by, "ahead_s": self.ahead.get(name, 0), "folder": str(self.folder / "stops")}
        program = ["party"] if name == ASKER else []
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.hosts.command(name, sys.executable, "-m", "tests.harness.hurried", *program, *words, *home),
                stdout=log, stderr=log, env={**os.environ, "HURRIED": json.dumps(given)},
            )  # fmt: skip
        return None


class Labelled(OnHosts, ConsortiumHere):
    """The demo's, with a fifth hospital."""


class Summed(OnHosts, SummedConsortium):
    """The same at level secure_sum."""


class Asked(OnHosts, AskedProcesses):
    """One in which a hospital asks."""


class Cuts:
    """Cuts in one consortium, a batch at a time, and what came of them."""

    def __init__(self, made, names: list[str], side: str, done: Counter[str]) -> None:
        self.made, self.names, self.side, self.done = made, names, side, done
        self.stops, self.seen = made.folder / "stops", dict[int, bytes]()
        self.rounds: list[tuple[int, set[str]]] = []

    def number(self) -> int:
        """How many batches are released, none otherwise than before."""
        path = ledger_of(self.made.folder, self.side)
        for number, payload in ({} if path is None else released(path)).items():
            assert self.seen.setdefault(number, payload) == payload, "released otherwise"
        return len(self.seen)

    def asked(self) -> bool:
        """Whether whoever asks has ended well; it is started again where it ended otherwise."""
        asking = self.made.processes.get(ASKER)
        code = None if asking is None else asking.poll()
        if code:
            self.done[f"ask ended with {code}"] += 1
            self.made.start(ASKER)
        return code == 0

    def next_batch(self) -> None:
        """Waits until the next batch is about to be asked."""
        wait_until(lambda: self.asked() or (self.stops / "batch.here").exists(), timeout_s=STEP_S)

    def go(self) -> None:
        (self.stops / "batch.here").unlink()

    def events(self, name: str) -> list[dict]:
        lines = (self.made.folder / f"{name}.log").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def connected(self, name: str) -> bool:
        last = [each["event"] for each in self.events(name) if each["event"] in ("connected", "disconnected")]
        return bool(last) and last[-1] == "connected"

    def strike(self, victim: str, place: str, seconds: float) -> None:
        """Cuts the link of a host where a batch has come to that place; all goes on by itself once it is mended."""
        wanted, here, batch = (self.stops / name for name in (f"{place}.wanted", f"{place}.here", "batch.here"))
        while not here.exists():  # on a busy machine a batch may do without this seat
            self.next_batch()
            before = self.number()
            wanted.touch()
            self.go()
            wait_until(lambda: here.exists() or batch.exists(), timeout_s=STEP_S)
        self.made.hosts.cut(victim)
        here.unlink()
        ends = time.monotonic() + seconds / self.made.by
        if victim in self.names and seconds > DEADLINE_S:  # the others go on without it
            wait_until(lambda: batch.exists() or time.monotonic() > ends, timeout_s=STEP_S)
            if batch.exists():
                self.go()
        time.sleep(max(0.0, ends - time.monotonic()))
        if seconds > DEADLINE_S and victim in self.names:
            assert not self.connected(victim), f"{victim} was not told that its line is down"
        self.made.hosts.mend(victim)
        self.settle(victim, f"{place.partition('-')[0]}, {seconds:g} s", before, out=seconds >= DEADLINE_S)

    def times(self, name: str) -> int:
        """How often a hospital connected."""
        return sum(each["event"] == "connected" for each in self.events(name))

    def upset(self, what: str, victim: str, dialled: list[str], do, undo=lambda: None, *, seconds=DEADLINE_S) -> None:
        """Has something else happen to a host as a batch is asked. dialled: who then has to dial anew."""
        self.next_batch()
        before, times = self.number(), {name: self.times(name) for name in dialled}
        do()
        self.go()
        time.sleep(seconds / self.made.by)
        undo()
        wait_until(lambda: all(self.times(name) > times[name] for name in dialled), timeout_s=STEP_S)
        self.settle(victim, what, before, out=bool(dialled))

    def upsets(self) -> None:
        """Another address, a connection that is forgotten on its way, one way only, a slow line, an unknown name."""
        hosts, name = self.made.hosts, self.names[0]

        def unknown() -> None:
            hosts.forget("centre", of=name)
            hosts.cut(name)

        def known() -> None:
            said = [each["reason"] for each in self.events(name) if each["event"] == "disconnected"][-1]
            assert "centre" in said, f"{name} was not told that a name does not resolve, but: {said}"
            hosts.mend(name)
            hosts.move(name)

        self.upset("another address", "centre", self.names, lambda: hosts.move("centre"))
        self.upset("connection forgotten", name, [name], lambda: hosts.move(name))
        self.upset("one way only", name, [name], lambda: hosts.mute(name), lambda: hosts.mend(name))
        self.upset("64 kbit/s", name, [], lambda: hosts.slow(name, 64), lambda: hosts.mend(name))
        self.upset("unknown name", name, [name], unknown, known, seconds=2 * DEADLINE_S)

    def settle(self, victim: str, what: str, before: int, *, out: bool) -> None:
        """All come back by themselves, and the next batch has everybody's votes. out: whether the cut lasted so long
        that a batch may do without those that were cut off."""
        wait_until(lambda: all(map(self.connected, self.names)), timeout_s=STEP_S)
        self.next_batch()
        during = self.number()
        self.go()
        self.next_batch()
        may = {False: set(), True: {victim} if victim in self.names else set(self.names)}[out]
        self.rounds += [(number, may) for number in range(before, during)]
        self.rounds += [(number, set()) for number in range(during, self.number())]
        of = "hospital" if victim in self.names else victim
        self.done[f"{of}: {what}"] += 1

    def end(self) -> None:
        """Nothing stops any more. Raises AssertionError where a seat was left out that was not cut off."""
        shutil.rmtree(self.stops)
        with Ledger(ledger_of(self.made.folder, self.side)) as own:
            for number, may in self.rounds:
                paid = own.settled(number)
                missed = {seat for seat in own.charged(number) if not paid.get(seat)}
                self.done["seats left out while cut off"] += len(missed)
                assert missed <= may, f"batch {number}: {missed} left out; cut off: {may}"


def run(folder: Path, level: str, seconds: list[float], by: float, done: Counter[str]) -> None:
    """All cuts of one level."""
    asks = level == "hidden_queries"
    with contextlib.ExitStack() as held:
        if asks:
            made = Asked(folder, parties=5, queries=ASKED, batch=1, quorum=3, deadline_s=DEADLINE_S / by)
            names, side, guardian = made.names, ASKER, "notary"
        else:
            data = demo_data(None)
            data = replace(data, pool=data.pool[:POOL], rows={**data.rows, "fifth": data.rows["cleveland"][::2]})
            made = consortium_of(folder, level, data, kinds=(Labelled, Summed), deadline_s=DEADLINE_S / by)
            names, side, guardian = list(data.rows), "centre", "guardian" if level == "two_server" else ""
        held.callback(made.stop)
        if not asks:
            made.set_up()
        made.stop()
        servers = ["centre", *([guardian] if guardian else [])]
        hosts = held.enter_context(Hosts(folder, [*names, *servers, *([ASKER] if asks else [])]))
        made.spread(hosts, guardian)
        # Two clocks are more than a minute apart from the others', and two minutes from each other.
        made.by, made.ahead = by, {names[1]: 61.0, names[2]: -61.0}
        held.callback(made.stop)
        cuts = Cuts(made, names, side, done)
        for name in (*servers, *names):
            made.start(name)
        wait_until(lambda: all(map(cuts.connected, names)), timeout_s=STEP_S)
        made.start(ASKER) if asks else made.coordinator("label", "demo")
        for at, (time_s, phase) in enumerate((time_s, phase) for time_s in seconds for phase in PHASES):
            seat = names[at % len(names)]
            cuts.strike(seat, f"{phase}-{seat}", time_s)
            cuts.strike("centre", f"{phase}-{seat}", time_s)
            if guardian and phase != PHASES[0]:
                cuts.strike(guardian, f"piece{PHASES.index(phase) - 1}-guardian", time_s)
        cuts.upsets()
        cuts.next_batch()
        cuts.end()
        if asks:
            wait_until(cuts.asked, timeout_s=2 * STEP_S)
        else:
            made.finish()
        skewed = [name for name in names if any(each["event"] == "clock_skew" for each in cuts.events(name))]
        assert skewed == names[1:3], f"told that their clocks are wrong: {skewed}"
    done["batches"] = cuts.number()
    compare(folder, side, guardian, names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--seconds", nargs="+", type=float, default=[1.0, 60.0, 600.0])
    parser.add_argument("--by", type=float, default=20.0)
    given = parser.parse_args()
    if said := why_not():
        print(said, file=sys.stderr)
        return 3
    for level in given.levels:
        done = Counter[str]()
        with tempfile.TemporaryDirectory(prefix="cuts-") as folder:
            run(Path(folder), level, given.seconds, given.by, done)
        print(json.dumps({"level": level, **done}, indent=1), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
