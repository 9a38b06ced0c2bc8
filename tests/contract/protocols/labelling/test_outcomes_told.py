"""Outcomes reach the parties also where the coordinator stops between what it settles and what it tells."""

import pytest

from protocols.wire.messages import Outcome
from tests.harness.six_parties import NAMES, SHARED, SUMMED, World


class Stopped(BaseException):
    """The coordinator's process ended."""


@pytest.mark.parametrize("study", [SUMMED, SHARED], ids=["secure_sum", "two_server"])
def test_a_coordinator_that_stops_before_it_tells_an_outcome_tells_it_when_it_goes_on(tmp_path, study):
    world = World(study, tmp_path)
    told = []

    def stops(name, request):
        if isinstance(request, Outcome):
            told.append(name)
            if len(told) == 3:
                raise Stopped
        return False

    world.gone = stops
    with pytest.raises(Stopped):
        world.label()
    # What no outcome could lower was settled when it was charged, and everybody is told all the same.
    reserved = [world.ledgers[name].unsettled() for name in NAMES]
    assert reserved == [[0] if study.budgets.settles else []] * len(NAMES)
    assert world.own.stored(0).settled
    world.gone = lambda name, request: False
    got = world.label()
    assert set(told) < set(NAMES)
    assert got.batches
    assert got.ledger_differences == {}
    assert world.spends() == world.coordinators()
    assert all(world.ledgers[name].unsettled() == [] for name in NAMES)
    asked = len(world.requests)
    world.label()
    assert world.requests[asked:] == []  # nothing is told twice
    world.close()
