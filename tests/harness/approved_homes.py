"""Homes and studies of one hospital: what each study costs, and what the hospital is told when it may not vote."""

import contextlib
import sqlite3
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from party.home import PartyHome
from party.lifetime import LifetimeCap, study_cost
from protocols.budgets.filter import NANO
from protocols.study.queries import QueryBatch
from protocols.wire.messages import VoteRequest
from tests.harness.studies import deployed_study

SEAT = "hospital-0"
QUERIES = 5
STUDIES = [
    replace(
        deployed_study(1, pool=40, batch_limit=QUERIES, account="gaussian", sigma=6.0 + number), name=f"study-{number}"
    )
    for number in range(3)
]
for _study in STUDIES:
    assert _study.budgets.cap[0] > 0  # solved once
BY_DIGEST = {study.digest: study for study in STUDIES}
# One study fits, and a second one beside what little another spent.
CAPS = {"record": LifetimeCap(16.0, 1e-5)}
# What a hospital is told, all of which leaves it as it was.
EXPECTED = {
    "ledger_rolled_back", "policy_rolled_back", "withdrawn", "approved_elsewhere", "lifetime_cap", "unknown_study",
    "batch_reused", "query_repeated", "budget_exceeded", "peer_rolled_back",
}  # fmt: skip


class Place(PartyHome):
    """A home whose studies are read once."""

    def study(self, digest):
        return BY_DIGEST[digest]


@dataclass(eq=False)
class Answer:
    """An answer that left: of which study, to which request, how many queries; and how many the outcome answered."""

    study: int
    digest: bytes
    answered: int | None


class Stop(Exception):
    """The process ends here."""


def request(study, number, start):
    inputs = np.zeros((QUERIES, 4), np.float32)
    return VoteRequest(study.digest, b"run", QueryBatch(number, np.arange(start, start + QUERIES), inputs))


def copied(source, target):
    """A file as it is, without the journals of the one that it replaces."""
    for end in ("-wal", "-shm"):
        target.with_name(target.name + end).unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)


@cache
def price(number):
    """Spend of a query asked, and of one answered, in nano-units, not rounded."""
    budgets = STUDIES[number].budgets
    return float(budgets.ask[0]) * NANO, float(budgets.answer[0]) * NANO


@cache
def lifetime_cost(number, nano, currency):
    return study_cost(STUDIES[number], SEAT, unit="record", spent={SEAT: nano}, told_apart=False).at(currency)
