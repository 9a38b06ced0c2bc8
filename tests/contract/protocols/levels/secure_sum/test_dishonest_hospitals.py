"""A hospital that runs another program stops no batch, is named alone, and costs the others nothing that is lost."""

import numpy as np
import pytest

from protocols.levels.secure_sum.terms import context_of
from protocols.levels.secure_sum.wire import NOT_VALID, keys_statement, sized, table_of
from protocols.wire.messages import StepReply
from tests.harness.sum_attackers import sealing_garbage
from tests.harness.summed_world import NAMES, STUDY, World, kind

ATTACKER = "p2"


def signed(world, context, statement):
    """The attacker's signature of a statement, and its tags for the neighbours."""
    authenticator, place = world.parties[ATTACKER]._ballot._authenticator, NAMES.index(ATTACKER)
    neighbours = [context.members[other] for other in context.graph.neighbours(place).tolist()]
    return sized(authenticator.sign(statement)), table_of([authenticator.tag(name, statement) for name in neighbours])


def low_order(row):
    """Signs a key of low order."""

    def reply(world, request, reply):
        context = context_of(STUDY, request.batch_digest, queries=int(request.arrays[0][0]))
        keys = reply.arrays[0].copy()
        keys[row] = 0
        return keys, *signed(world, context, keys_statement(context.digest, NAMES.index(ATTACKER), keys))

    return {"sum_keys": reply}, "weak_key"


def garbage(rows):
    """Seals garbage, with signed answers of which everything else is right, and stays away."""

    def reply(world, request, reply):
        with sealing_garbage(rows):
            return world.parties[ATTACKER].handle(request).arrays

    return {"sum_shares": reply, "vote": None, "sum_agree": None, "sum_open": None}, "bad_shares"


def accusing(world, request, reply):
    """Says that nobody's shares are valid; where it is asked to prove that, it proves nothing."""
    return np.full_like(reply.arrays[0], NOT_VALID), *reply.arrays[1:]


PROGRAMS = {
    "a sealing key of low order": low_order(0),
    "a mask key of low order": low_order(1),
    "garbage for everybody": garbage(range(6)),
    "garbage for one": garbage([0]),
    "accusations without proof": ({"sum_check": accusing, "sum_dispute": accusing}, "false_accusation"),
    "accusations and silence": ({"sum_check": accusing, "sum_dispute": None}, "absent"),
}


def run(program):
    def tamper(name, request, reply):
        step = kind(request)
        if name != ATTACKER or step not in program:
            return reply
        deviate = program[step]
        if deviate is None or not isinstance(reply, StepReply):
            return None
        return StepReply(reply.batch_digest, reply.step, tuple(deviate(world, request, reply)))

    world = World(tamper)
    return world, world.label()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_batch_is_released_without_the_attacker_who_alone_is_named(name):
    program, code = PROGRAMS[name]
    world, got = run(program)
    assert (got.labels >= 0).any()
    assert got.stop.reason != "quorum_lost"
    assert got.refusals == {ATTACKER: code}
    honest = [seat for seat in NAMES if seat != ATTACKER]
    released = dict(zip(NAMES, got.spent.tolist(), strict=True))
    assert [world.ledgers[seat].balance(seat).spent for seat in honest] == [released[seat] for seat in honest]
    # It was out before anybody was asked for votes, itself too.
    assert world.ledgers[ATTACKER].balance(ATTACKER).spent == released[ATTACKER] == 0
    world.close()


def test_a_seat_that_is_done_without_is_asked_for_nothing_and_pays_nothing():
    asked = set()
    world = World(lambda name, request, reply: asked.add(name) or reply)
    found = world.label(without=(ATTACKER,))
    assert (found.labels >= 0).any()
    assert asked == {*NAMES} - {ATTACKER}
    assert found.refusals == found.ledger_differences == {}
    assert world.ledgers[ATTACKER].balance(ATTACKER).spent == 0
    world.close()


def test_nobody_is_charged_for_a_batch_that_has_too_few_honest_dealers():
    """One more than the drop-outs: the batch waits, and costs nobody anything."""
    program, _ = PROGRAMS["garbage for everybody"]
    world = World(lambda name, request, reply: None if name == "p4" and kind(request) == "sum_keys" else reply)
    before = world.tamper

    def tamper(name, request, reply):
        if name == ATTACKER and kind(request) == "sum_shares":
            return StepReply(reply.batch_digest, reply.step, tuple(program["sum_shares"](world, request, reply)))
        return before(name, request, reply)

    world.tamper = tamper
    got = world.label()
    assert got.stop.reason == "quorum_lost"
    assert got.refusals == {"p4": "absent", ATTACKER: "bad_shares"}
    assert [world.ledgers[name].balance(name).spent for name in NAMES] == [0] * len(NAMES)
    world.tamper = lambda name, request, reply: reply
    assert (world.label().labels >= 0).any()
    world.close()


def test_a_dispute_shows_the_coordinator_the_key_of_one_sealed_share_and_no_other():
    program, _ = PROGRAMS["garbage for one"]
    world, shown = World(), []

    def tamper(name, request, reply):
        if name == ATTACKER and kind(request) == "sum_shares":
            return StepReply(reply.batch_digest, reply.step, tuple(program["sum_shares"](world, request, reply)))
        if kind(request) == "sum_dispute":
            shown.append((name, reply.arrays))
        return reply

    world.tamper = tamper
    world.label()
    ((name, (verdicts, _, points, _)),) = shown
    assert name != ATTACKER
    assert verdicts.tolist() == [NOT_VALID]
    assert points.any()
    world.close()
