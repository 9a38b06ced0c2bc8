"""A disk that gives back other bits than were written: a policy says so, and never believes that less is reserved."""

import random
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from party.budget.policy import Policy
from protocols.errors import ConclaveError, StorageFailed
from tests.contract.party.budget.test_policy import CAPS, STUDIES, approve, withdraw
from tests.harness.changed_database import changed_database
from tests.harness.failing_disk import scratch


def reserved(path):
    """What every cap of the file holds, and what was approved."""
    with Policy(path) as policy:
        uses = [(use.data_set, use.unit, use.reserved, use.noise_used) for use in policy.lifetime_uses()]
        # A cap that differs from node.toml's.
        policy.forecast(STUDIES[4], party="p0", data_set="ward", caps=CAPS, told_apart=False)
        return uses, [(each.study, each.data_set, each.home) for each in policy.approvals()]


@pytest.fixture(scope="module")
def written():
    """The bytes of a policy with a study that runs and one that was withdrawn; the folder; what it says."""
    with scratch() as folder:
        path = Path(folder, "policy.sqlite")
        with Policy(path) as policy:
            approve(policy, STUDIES[0])
            approve(policy, STUDIES[1])
            withdraw(policy, STUDIES[1], 5)
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        yield path.read_bytes(), Path(folder), reserved(path)


def test_no_flipped_bit_lowers_what_is_reserved(written):
    content, folder, good = written
    near = set()
    for name in (b"wardrecord", b"ward"):
        at = content.find(name)
        while at >= 0:
            near |= set(range(at - 40, at + 44))
            at = content.find(name, at + 1)
    drawn, found = random.Random(1), Counter()
    for at in drawn.sample(sorted(near), 500):
        damaged = bytearray(content)
        damaged[at] ^= 1 << drawn.randrange(8)
        path = folder / "damaged.sqlite"
        path.write_bytes(damaged)
        try:
            found["the same" if reserved(path)[0] == good[0] else "something else"] += 1
        except ConclaveError:
            found["refused"] += 1
        for left in folder.glob("damaged.sqlite-*"):
            left.unlink()
    assert found["something else"] == 0
    assert found["refused"] > 100


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE reservation SET nano = nano - 1",
        "UPDATE reservation SET noise_distance = 0",
        "UPDATE reservation SET data_set = 'other'",
        "DELETE FROM reservation",
    ],
)
def test_a_reservation_that_is_not_what_the_log_says_is_not_used(written, change):
    content, folder, _ = written
    path = changed_database(content, folder / "changed.sqlite", change)
    with pytest.raises(StorageFailed, match="not what the log says: it is damaged"):
        Policy(path)
