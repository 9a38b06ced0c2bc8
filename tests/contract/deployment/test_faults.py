"""Whatever breaks, and whenever: all spending is recorded, no cap passed, nothing released twice, and it ends."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.failing_disk import scratch
from tests.harness.studies import deployed_study
from tests.harness.world import World

ONE_PRICE = {"mechanism": "thresholded_gnmax", "sigma_threshold": None}
STUDIES = [deployed_study(3, pool=6, batch_limit=3, quorum=2, **more) for more in ({}, ONE_PRICE)]
# Two batches of two parties: small, so that every statement can be tried.
SMALL = deployed_study(2, pool=4, batch_limit=2, quorum=1)
SMALL_ONE_PRICE = deployed_study(2, pool=4, batch_limit=2, quorum=1, **ONE_PRICE)
FAULTS = ["", "", "", "lost", "answer lost", "twice", "old", "altered", "away"]
HOW = ["crash", "crash after", "full"]
# How many statements are tried for each side and way, at least: as many as a study without faults has.
TRIED = {
    "coordinator": {"crash": 22, "crash after": 10, "full": 30},
    "hospital-1": {"crash": 11, "crash after": 5, "full": 14},
}
SEQUENCES = int(os.environ.get("CONCLAVE_FAULT_SEQUENCES", "25"))
ENDS = {"pool_exhausted", "budget_exhausted"}


def finish(world):
    """Attempts without new faults until the study ends; it must, and soon."""
    for _ in range(4):
        labelled = world.attempt()
        if labelled is not None and labelled.stop.reason in ENDS:
            return labelled
    raise AssertionError("the study did not end although nothing was broken any more")


def statements(side, how, study=SMALL):
    """The statements of a side's database at which a study without faults can be broken, each to an effect of its own.

    The end of a process leaves what was committed: it is tried wherever something was committed or sent since the
    statement before. A disk that is full refuses to write: what one transaction wrote before is undone whichever of
    its statements fails, so that its ends are tried. how "charge": those that charge it for a batch. how "write": every
    one that a full disk can refuse.
    """
    with scratch() as folder, World(study, Path(folder)) as world:
        database = (world.ledger if side == "coordinator" else world.ledgers[side])._database
        before = database.statements
        finish(world)
        tried = {
            "crash": database.moments,
            "crash after": database.commits,
            "full": ends(database),
            "write": database.writes,
            "charge": database.charges,
        }[how]
        return [statement - before for statement in tried if statement >= before]


def ends(database):
    """Of the statements that write between two commits: that which begins, the first that follows it, and the last."""
    written = np.array(database.writes)
    of = np.searchsorted(database.commits, written)
    return sorted({int(at) for each in np.unique(of) for at in (*written[of == each][:2], written[of == each][-1])})


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("side", ["coordinator", "hospital-1"])
def test_a_side_may_die_at_every_moment_that_leaves_a_state_of_its_own_or_its_disk_fill_up_in_any_transaction(
    side, how
):
    tried = statements(side, how)
    assert len(tried) >= TRIED[side][how]
    for statement in tried:
        with scratch() as folder, World(SMALL, Path(folder)) as world:
            ledger = world.ledger if side == "coordinator" else world.ledgers[side]
            ledger._database.fail(how, statement)
            world.attempt()
            assert len(finish(world).labels) == SMALL.terms.pool_size


def test_a_hospital_that_dies_before_between_or_after_what_charges_one_price_has_charged_it_or_nothing():
    """At every write of the first batch's charge, and at moments up to where its outcome is on disk too.

    `World.check` compares every ledger with the prices.
    """
    first, second = statements("hospital-1", "charge", SMALL_ONE_PRICE)
    commits = statements("hospital-1", "crash after", SMALL_ONE_PRICE)
    before, charged = max(at for at in commits if at < first), min(at for at in commits if at > first)
    told = max(at for at in commits if at < second)
    writes = [at for at in statements("hospital-1", "write", SMALL_ONE_PRICE) if before < at <= charged]
    moments = [at for at in statements("hospital-1", "crash", SMALL_ONE_PRICE) if charged < at <= told + 1]
    assert (len(writes) > 5, len(moments) > 2) == (True, True)
    for statement in writes + moments:
        with scratch() as folder, World(SMALL_ONE_PRICE, Path(folder)) as world:
            world.ledgers["hospital-1"]._database.fail("crash", statement)
            world.attempt()
            finish(world)
            own = {name: world.ledgers[name].balance(name) for name in world.seats}
            assert {name: world.ledger.balance(name) for name in own} == own


@pytest.mark.slow
@settings(max_examples=SEQUENCES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_generated_sequences_of_faults_keep_every_promise(data):
    with (
        scratch() as folder,
        World(data.draw(st.sampled_from(STUDIES)), Path(folder), settles=data.draw(st.booleans())) as world,
    ):
        for _ in range(data.draw(st.integers(1, 4))):
            for name in data.draw(st.sets(st.sampled_from(["coordinator", *world.seats]))):
                ledger = world.ledger if name == "coordinator" else world.ledgers[name]
                ledger._database.fail(data.draw(st.sampled_from(HOW)), data.draw(st.integers(0, 60)))
            world.attempt(data.draw(st.lists(st.sampled_from(FAULTS), max_size=25)))
        finish(world)
