"""The ledger against a dictionary, over generated orders of reserving and settling."""

from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocols.errors import BudgetExceeded
from protocols.ledger.ledger import Ledger
from tests.harness.amounts import nano
from tests.harness.refusals import refused_for, refuses


def digest(number: int) -> bytes:
    return bytes([number % 256]) * 32


class LedgerLaws(RuleBasedStateMachine):
    """Any order of reserve and settle keeps every account within its cap and agrees with a dictionary."""

    caps: ClassVar = {"a": 100, "b": 250}

    @initialize()
    def open(self) -> None:
        self.ledger = Ledger(":memory:")
        self.ledger.open_accounts(nano(self.caps))
        self.reserved: dict[int, dict[str, int]] = {}
        self.settled: dict[int, dict[str, int]] = {}

    def spent(self, name: str) -> int:
        final = {n: self.settled.get(n, amounts) for n, amounts in self.reserved.items()}
        return sum(amounts.get(name, 0) for amounts in final.values())

    @rule(number=st.integers(0, 12), a=st.integers(0, 60), b=st.integers(0, 120))
    def reserve(self, number: int, a: int, b: int) -> None:
        amounts = {"a": a, "b": b}
        fits = all(self.spent(name) + amount <= self.caps[name] for name, amount in amounts.items())
        if number in self.reserved:
            with refused_for("batch_reused"):
                self.ledger.reserve(number, digest(number + 100), amounts, b"x", queries=[1000], limit=2000)
        elif not fits:
            with refuses(BudgetExceeded, "0 to"):
                self.ledger.reserve(number, digest(number), amounts, b"x", queries=[number], limit=2000)
            assert self.ledger.stored(number) is None
        else:
            self.ledger.reserve(number, digest(number), amounts, b"x%d" % number, queries=[number], limit=2000)
            self.reserved[number] = amounts
            assert self.ledger.stored(number).payload == b"x%d" % number

    @rule(number=st.integers(0, 12), a=st.integers(0, 60), b=st.integers(0, 120))
    def settle(self, number: int, a: int, b: int) -> None:
        amounts = {"a": a, "b": b}
        if number not in self.reserved:
            with refused_for("unknown_batch"):
                self.ledger.settle(number, digest(number), amounts)
        elif number in self.settled:
            if amounts == self.settled[number]:
                self.ledger.settle(number, digest(number), amounts)
            else:
                with refused_for("settled_otherwise"):
                    self.ledger.settle(number, digest(number), amounts)
        elif any(amounts[name] > self.reserved[number][name] for name in amounts):
            with refused_for("settles_upwards"):
                self.ledger.settle(number, digest(number), amounts)
        else:
            self.ledger.settle(number, digest(number), amounts)
            self.settled[number] = amounts

    @invariant()
    def agrees_with_the_model_and_stays_within_the_caps(self) -> None:
        for name, cap in self.caps.items():
            balance = self.ledger.balance(name)
            assert balance.spent == self.spent(name)
            assert balance.spent <= cap

    def teardown(self) -> None:
        self.ledger.close()


TestLedgerLaws = LedgerLaws.TestCase
TestLedgerLaws.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
