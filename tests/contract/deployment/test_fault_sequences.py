"""A sample of the generated fault sequences, at every level and mechanism; fault_campaign.py runs as many as asked."""

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.failing_disk import scratch
from tests.harness.fault_kinds import kinds
from tests.harness.fault_sequences import Sequences, study_of

# Sequences of each kind; a circuit takes 0.1 s.
MOST = {"clear": None, "secure_sum": 5, "two_server": 2, "hidden_queries": 2}


@pytest.mark.parametrize("name", list(kinds()))
def test_generated_faults_at_any_side_keep_every_promise_and_the_batch_ends(name):
    tried: Counter[str] = Counter()
    assert study_of(name, "sample", tried, set(), most=MOST[name.split(",")[0]]) > 0
    assert any(what.startswith("ended") for what in tried)


# What a broken ledger would leave, by what notices it.
DAMAGE = {
    "spent and not recorded": ("hospital-0", "UPDATE account SET reserved = 0"),
    "a cap is exceeded": ("hospital-1", "UPDATE account SET reserved = cap - settled + 1"),
    "released otherwise": ("coordinator", "UPDATE batch SET payload = x'0700000000000000' WHERE number = 0"),
}


@pytest.fixture(scope="module")
def settled():
    """A study of nodes that believe no outcome, with two batches behind it."""
    with scratch() as folder:
        made = Sequences(kinds()["clear, does not settle"], Path(folder), random.Random(1), Counter())
        assert made.world.attempt(4).stop.reason == "pool_exhausted"
        made.promises.check()
        yield made
        made.world.close()


@pytest.mark.parametrize("noticed", list(DAMAGE))
def test_a_ledger_that_breaks_a_promise_is_noticed(settled, noticed):
    side, statement = DAMAGE[noticed]
    database = settled.world.ledgers[side]._database._database
    database.execute("SAVEPOINT damage")
    try:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute(statement)
        with pytest.raises(AssertionError, match=noticed):
            settled.promises.check()
    finally:
        database.execute("ROLLBACK TO damage")
        database.execute("RELEASE damage")
