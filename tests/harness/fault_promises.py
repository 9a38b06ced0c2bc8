"""What must hold after every generated sequence of faults, whatever it was: a check of a FaultWorld."""

import numpy as np

from protocols.votes import ABSTAIN
from tests.harness.fault_world import FaultWorld

# Notes that are final once a batch has them: what is drawn once, and what is fixed once.
CHECK = ("secret", "voters", "number", "coin", "blinded sums", "masked results", "tests")
FINAL = ("noise_seed", *(f"check {each}" for each in CHECK), "sum_survivors", "opened", "guardian")


class Promises:
    """Remembers what a world released, and checks that it never takes anything back."""

    def __init__(self, world: FaultWorld) -> None:
        self.world = world
        self.released: dict[int, bytes] = {}
        self.notes: dict[tuple[str, bytes, str], bytes] = {}

    def check(self) -> None:
        """Raises AssertionError unless every promise holds."""
        self.caps()
        self.once()
        self.final()
        self.recorded()
        if self.world.kind.guarded:
            self.both_servers()

    def whole_logs(self) -> None:
        """Every entry of every log is where its hash says."""
        for ledger in self.world.ledgers.values():
            list(ledger.log.entries())

    def caps(self) -> None:
        """No account is above its cap, or below nothing."""
        for ledger in self.world.ledgers.values():
            for balance in ledger.balances().values():
                assert min(balance.settled, balance.reserved) >= 0
                assert balance.spent <= balance.cap, "a cap is exceeded"

    def once(self) -> None:
        """Labels of a batch never change, no query is in two batches, and no batch is released and given up."""
        world = self.world
        asked: list[int] = []
        for number, stored in batches(world.ledgers["coordinator"]):
            asked += world.ledgers["coordinator"].queries(number)
            if stored.settled:
                assert self.released.setdefault(number, stored.payload) == stored.payload, "released otherwise"
                assert not world.ledgers["coordinator"].given_up(number)
        assert len(asked) == len(set(asked)), "a query was asked in two batches"

    def final(self) -> None:
        """Noise is drawn once for a batch, and what was fixed stays fixed."""
        kinds = ", ".join(f"'{kind}'" for kind in FINAL)
        for side, ledger in self.world.ledgers.items():
            for digest, kind, value in ledger._rows(
                f"SELECT digest, kind, value FROM note WHERE kind IN ({kinds})", ()
            ):
                known = self.notes.setdefault((side, bytes(digest), kind), bytes(value))
                assert known == bytes(value), f"{side}: {kind} of a batch changed"

    def recorded(self) -> None:
        """Every hospital's ledger holds at least what left the hospital cost, and the coordinator's no more."""
        world, study = self.world, self.world.study
        centre = world.ledgers["coordinator"]
        labels = {
            stored.digest: np.frombuffer(stored.payload, dtype="<i8")[: stored.queries]
            for _, stored in batches(centre)
            if stored.settled
        }
        for name in world.names:
            seat, happened = study.seats[name], 0
            for digest in world.left[name]:
                size = world.sizes[digest]
                answered = int((labels[digest] != ABSTAIN).sum()) if digest in labels else size
                if (name, digest) in world.lies:  # a node that settles believes the first outcome that it is told
                    answered = 0
                happened += int(study.budgets.amount(size, answered)[seat])
            own = world.ledgers[name].balance(name)
            assert happened <= own.spent, "spent and not recorded"
            if not any(liar == name for liar, _ in world.lies):
                assert centre.balance(name).settled <= own.spent, "the coordinator charged more than the hospital did"
            if not study.budgets.settles:
                sizes = [len(world.ledgers[name].queries(at)) for at, _ in batches(world.ledgers[name])]
                prices = [int(study.budgets.amount(size, 0)[seat]) for size in sizes]
                assert (own.settled, own.reserved) == (sum(prices), 0), "one price, charged at once"

    def both_servers(self) -> None:
        """What the first server released, the guardian settled alike: the same charges, the same answered queries."""
        world = self.world
        guardians, centre = world.ledgers["guardian"], world.ledgers["coordinator"]
        at_guardian = {stored.digest: stored for _, stored in batches(guardians)}
        for number, stored in batches(centre):
            if not stored.settled:
                continue
            other = at_guardian[stored.digest]
            assert other.settled
            assert guardians.settled(other.number) == centre.settled(number)
            if not world.study.votes.once:
                answered = np.frombuffer(stored.payload, dtype="<i8")[: stored.queries] != ABSTAIN
                np.testing.assert_array_equal(np.frombuffer(other.payload, dtype=np.bool_), answered)


def batches(ledger) -> list[tuple[int, object]]:
    """The batches that a ledger charged, in order of their numbers."""
    rows = ledger._rows("SELECT number FROM batch ORDER BY number", ())
    return [(int(number), ledger.stored(int(number))) for (number,) in rows]
