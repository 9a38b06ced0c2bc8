"""A server that falsifies what it enters, end to end: no label comes out, both logs say so, and it may not go on.

The other server is the real program; a coordinator stands for a querying hospital too, which is the first server there.
"""

import pytest

from protocols.errors import Refused
from protocols.levels.two_server import circuit_inputs
from protocols.levels.two_server.batch_notes import MOST_OPENED
from protocols.refusals.code import Code
from tests.harness import input_cheats as cheats
from tests.harness.guardian_attempts import STUDY, World
from tests.harness.input_cheats import CHEATS
from tests.harness.refusals import refused_for

QUERIES = 3


def cheating(monkeypatch, cheat, *, leads):
    """One of the servers enters by this class."""
    real = circuit_inputs.InputCheck

    class Either(real):
        def run(self, exchange):
            if exchange.leads == leads:
                self.__class__ = cheat
            return self.run(exchange) if self.__class__ is cheat else super().run(exchange)

    monkeypatch.setattr(circuit_inputs, "InputCheck", Either)


def breaks(ledger):
    """Who broke off the computation of labels, as this server's log has it, with the code."""
    events = [entry.fields for entry in ledger.log.entries() if entry.event == "labels_broken_off"]
    return [(each["by"], each["code"]) for each in events]


def attempted(world):
    """What the coordinator ends with, which must not be labels."""
    try:
        got = world.label(queries=QUERIES)
    except Refused as error:
        return error.code
    assert not got.batches
    assert got.stop.reason == "guardian_lost"
    return got.stop.reason


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda each: each.__name__)
def test_a_coordinator_that_enters_falsely_gets_no_label_signed_and_the_guardians_log_names_it(cheat, monkeypatch):
    world = World()
    cheating(monkeypatch, cheat, leads=True)
    attempted(world)
    assert breaks(world.guardians) == [("coordinator", Code.FALSE_INPUTS)]
    assert len(breaks(world.own)) == 1
    assert not world.guardians.stored(0).settled
    world.close()


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda each: each.__name__)
def test_a_guardian_that_enters_falsely_is_named_and_no_label_comes_out(cheat, monkeypatch):
    world = World()
    cheating(monkeypatch, cheat, leads=False)
    assert attempted(world) == Code.FALSE_INPUTS
    assert breaks(world.own) == [("guardian", Code.FALSE_INPUTS)]
    assert len(breaks(world.guardians)) == 1
    assert not world.own.stored(0).settled
    world.close()


@pytest.mark.parametrize("leads", [True, False], ids=["coordinator", "guardian"])
def test_after_three_batches_with_false_inputs_the_honest_server_takes_no_other(leads, monkeypatch):
    world = World(study=STUDY.voting(batch_limit=1))
    cheating(monkeypatch, cheats.Shifting, leads=leads)
    for number in range(MOST_OPENED):
        attempted(world)
        world.coordinator().give_up(number, world.pool)
    if leads:
        # A coordinator that deviates forgets what it opened.
        world.own.forget(world.study.digest, "opened 0")
    with refused_for(*(["guardian_refuses"] if leads else []), "too_many_opened"):
        world.label(queries=MOST_OPENED + 1)
    assert world.guardians.stored(MOST_OPENED) is None
    world.close()


@pytest.mark.parametrize("leads", [True, False], ids=["coordinator", "guardian"])
def test_a_server_that_enters_other_bits_than_it_bound_is_noticed_when_the_outputs_are_compared(leads, monkeypatch):
    world, real = World(), circuit_inputs.circuit_inputs

    def other(bound, **about):
        inputs = real(bound, **about)
        if about["leads"] == leads:
            inputs.numbers[0, 0] ^= 1 << 12
        return inputs

    monkeypatch.setattr(circuit_inputs, "circuit_inputs", other)
    attempted(world)
    assert Code.LABELS_DIFFER in {code for ledger in (world.own, world.guardians) for _, code in breaks(ledger)}
    assert not world.guardians.stored(0).settled
    world.close()
