"""Generated sequences of faults: what befalls one batch of a study, from its first attempt until it has ended.

fault_campaign.py runs many.
"""

import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from protocols.labelling.coordinator import Labelling
from protocols.ledger.ledger import Ledger
from tests.harness.failing_disk import scratch
from tests.harness.fault_kinds import SIZE, Kind, kinds
from tests.harness.fault_promises import Promises
from tests.harness.fault_world import FaultWorld

HOW = ("crash", "crash after", "full")
FAULTS = (
    *("",) * 6, "never arrives", "answer lost", "answer never arrives", "twice", "twice", "old", "old", "away",
    "contradicts", "contradicted",
)  # fmt: skip
ENDS = ("pool_exhausted", "budget_exhausted")
# Of so many statements of a ledger from now on, one fails; of so many messages to the guardian, one is the last.
STATEMENTS, MESSAGES = 90, 30


class Sequences:
    """Runs one study from its first batch to its last, with one generated sequence a batch."""

    def __init__(self, kind: Kind, folder: Path, draw: random.Random, tried: Counter[str]) -> None:
        self.draw, self.tried = draw, tried
        self.world = FaultWorld(kind, folder, tried)
        self.world.choice = draw
        self.promises = Promises(self.world)
        self.copies: dict[str, Path] = {}

    def run(self, most: int | None = None) -> int:
        """The number of sequences, at most `most`. Raises AssertionError where a promise is broken."""
        count, done, records = 0, 0, self.world.study.votes.once
        while count < self.world.kind.queries and done != most:
            count = self.world.kind.queries if records else count + self.draw.randint(1, SIZE)
            count = min(count, self.world.kind.queries)
            done += 1
            self.tried[f"sequences, {self.world.kind.name}"] += 1
            if not self.sequence(count):
                break
        self.promises.whole_logs()
        return done

    def sequence(self, count: int) -> bool:
        """One of them; whether the study goes on."""
        draw, world = self.draw, self.world
        self.backups(count)
        reason = ""
        for _ in range(draw.choice((1, 1, 2, 3))):
            for side in world.sides:
                if draw.random() < 0.25:
                    world.ledgers[side]._database.fail(draw.choice(HOW), draw.randrange(STATEMENTS))
            faults = [draw.choice(FAULTS) for _ in range(draw.randrange(12))]
            cuts = [draw.randrange(MESSAGES)] if world.kind.guarded and draw.random() < 0.3 else []
            self.tried["attempts"] += 1
            reason = reason_of(world.attempt(count, faults, cuts))
            self.promises.check()
            if draw.random() < 0.03 and world.coordinator.open_batch is not None:
                self.give_up(count, "at will")
        reason = self.finish(count, reason)
        self.tried[f"ended: {reason}"] += 1
        return reason == "pool_exhausted"

    def finish(self, count: int, reason: str) -> str:
        """Attempts without new faults until the batch has ended, one way or the other: it must, and soon."""
        for attempt in range(8):
            if reason not in ENDS:
                reason = reason_of(self.world.attempt(count))
                self.promises.check()
            if reason in ENDS:
                return reason
            # What a hospital charged for a request that contradicts the coordinator's, it does not answer again.
            if attempt % 2 and self.world.coordinator.open_batch is not None:
                self.give_up(count, reason)
        raise AssertionError(f"nothing is broken any more, and the batch does not end: {reason}")

    def give_up(self, count: int, why: str) -> None:
        """The operator gives the open batch up."""
        self.world.coordinator.give_up(self.world.coordinator.open_batch, self.world.kind.pool(count))
        self.tried[f"given up: {why}"] += 1
        self.promises.check()

    def backups(self, count: int) -> None:
        """Now and then keeps a copy of a ledger, or puts an old one in its place while others know a newer state."""
        side = self.draw.choice(self.world.sides)
        if self.world.kind.hidden and side != "guardian":
            return  # whoever asks about its own records compares heads with the guardian alone
        if side in self.copies and self.draw.random() < 0.5:
            self.restore(side, self.copies.pop(side), count)
        elif self.draw.random() < 0.3:
            self.copies[side] = copied(self.world, side, self.world.folder / f"{side}.{self.tried['attempts']}.old")

    def restore(self, side: str, old: Path, count: int) -> None:
        """With an old copy in the place of the newest nothing is answered or released; then the newest is back."""
        world = self.world
        with Ledger(old) as ledger:
            entries = ledger.log.head().count
        centre = world.ledgers["coordinator"]
        if side == "coordinator":
            known = max(world.ledgers[name].log.peer("coordinator").count for name in world.names)
        else:
            known = centre.log.peer(side).count
        if known <= entries:
            return
        newest = copied(world, side, world.folder / "newest")
        put(world, side, old)
        left = {name: len(each) for name, each in world.left.items()}
        settled = len(centre_settled(newest if side == "coordinator" else world.path("coordinator")))
        world.attempt(count)
        if side in world.names:
            assert len(world.left[side]) == left[side], "a hospital answered from an old copy of its ledger"
        else:
            assert len(centre_settled(world.path("coordinator"))) <= settled, "released from an old copy of a ledger"
        put(world, side, newest)
        if side != "coordinator":
            world.open_coordinator()
        self.tried[f"old copy refused, {side if side not in world.names else 'hospital'}"] += 1
        self.promises.check()


def reason_of(result: Labelling | str) -> str:
    """Why an attempt ended."""
    return result if isinstance(result, str) else result.stop.reason


def copied(world: FaultWorld, side: str, path: Path) -> Path:
    """A copy of a side's ledger as it is now."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as target:
        world.ledgers[side]._database._database.backup(target)
    return path


def put(world: FaultWorld, side: str, copy: Path) -> None:
    """Another copy in the place of a side's ledger, which then starts again."""
    world.ledgers[side].close()
    for end in ("", "-wal", "-shm"):
        world.path(side).with_name(world.path(side).name + end).unlink(missing_ok=True)
    shutil.move(copy, world.path(side))
    world.reopen(side)


def centre_settled(path: Path) -> list[tuple[int]]:
    """The batches that a ledger's file says are released."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT number FROM batch WHERE settled").fetchall()


def study_of(name: str, seed: str, tried: Counter[str], broken: set, *, most: int | None = None) -> int:
    """One study of this kind, from this seed: the number of its sequences, at most `most`.

    Raises AssertionError, see Promises.
    """
    with scratch() as folder:
        made = Sequences(kinds()[name], Path(folder), random.Random(f"{name} {seed}"), tried)
        try:
            return made.run(most)
        finally:
            made.world.close()
            broken |= made.world.broken
