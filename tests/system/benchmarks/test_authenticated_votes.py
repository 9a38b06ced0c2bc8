"""The prototype of authenticated inputs over shares that parties deal: masks are tested, sums are the votes'."""

import numpy as np
import pytest

from benchmarks.authenticated_inputs.input_check import InputCheck, Transfers
from benchmarks.authenticated_inputs.masks import (
    REPETITIONS,
    MaskTest,
    coordinator_keyed_shares,
    deal_masks,
    guardian_keyed_shares,
)
from benchmarks.authenticated_inputs.noise_pool import NoiseLaw
from protocols.crypto.discrete_gaussian import lattice_sigma
from protocols.crypto.field import minus, plus
from protocols.errors import MalformedMessage
from protocols.levels.two_server.shares import share_votes, vote_keys

VOTERS, QUERIES, CLASSES, CONTEXT = 6, 4, 3, b"a batch"


def dealt(*, spoilt=None):
    """Votes, and each server's shares of votes and masks; spoilt: a place in what the party sends of its masks."""
    rng = np.random.default_rng(0)
    votes = rng.integers(0, CLASSES, (VOTERS, QUERIES))
    coordinator, guardian = share_votes(votes, classes=CLASSES, context=CONTEXT, source=rng.bytes)
    keys = vote_keys(coordinator, guardian, queries=QUERIES, context=CONTEXT)[:, :REPETITIONS]
    sent = deal_masks(keys, coordinator.seeds, guardian.seeds, CONTEXT)
    if spoilt is not None:
        sent[spoilt] ^= 1
    return votes, (
        coordinator_keyed_shares(coordinator, sent, context=CONTEXT),
        guardian_keyed_shares(guardian, queries=QUERIES, classes=CLASSES, context=CONTEXT),
    )


def voters_found(both, *, cheat=MaskTest):
    """Which voters the servers find; the coordinator is of the class `cheat`."""
    sides = [
        kind(masks, shares.keys, coin=b"drawn after the shares", first=first, salt=bytes([first]) * 32)
        for kind, first, (shares, masks) in zip((cheat, MaskTest), (True, False), both, strict=True)
    ]
    messages = [side.open() for side in sides]
    for step in ("promise", "result", "finish"):
        messages = [getattr(side, step)(messages[1 - at]) for at, side in enumerate(sides)]
    return messages


def test_masks_that_are_dealt_as_agreed_pass():
    _, both = dealt()
    for found in voters_found(both):
        assert found.all()


@pytest.mark.parametrize("which", [0, 1], ids=["mask", "spare mask"])
@pytest.mark.parametrize("repetition", range(REPETITIONS))
@pytest.mark.parametrize("query", [0, QUERIES - 1])
def test_a_voter_whose_masks_are_spoilt_is_found_and_no_other(which, repetition, query):
    _, both = dealt(spoilt=(which, 2, repetition, query))
    for found in voters_found(both):
        np.testing.assert_array_equal(found, np.arange(VOTERS) != 2)


class ShiftsMasks(MaskTest):
    def open(self):
        self._opened[1, 0, 0] ^= 1
        return super().open()


def test_a_server_that_shifts_a_mask_gets_that_voter_left_out():
    _, both = dealt()
    for found in voters_found(both, cheat=ShiftsMasks):
        np.testing.assert_array_equal(found, np.arange(VOTERS) != 1)


class ChoosesItsResult(MaskTest):
    def result(self, theirs):
        return bytes(4) + super().result(theirs)[4:]


def test_a_server_that_opens_another_result_is_noticed():
    _, both = dealt()
    with pytest.raises(MalformedMessage, match="committed"):
        voters_found(both, cheat=ChoosesItsResult)


def test_sums_of_dealt_votes_are_bound_where_a_voter_is_left_out_and_one_takes_no_part():
    rng = np.random.default_rng(1)
    votes, both = dealt(spoilt=(0, 2, 0, 0))
    valid, _ = voters_found(both)
    takes_part = np.ones((VOTERS, QUERIES), dtype=bool)
    takes_part[4, 1] = False
    weights = rng.integers(32, 128, VOTERS)[:, None] * (takes_part & valid[:, None])
    law = NoiseLaw((lattice_sigma(2.0, units=64),), (CLASSES,))
    sides = [
        InputCheck(
            shares, weights, law, first=at == 0, secret=rng.bytes(32), digest=bytes(32), transfers=Transfers(rng.bytes)
        )
        for at, (shares, _) in enumerate(both)
    ]
    messages = [side.commitment() for side in sides]
    for step in ("agree", "enter", "draw", "open", "promise", "result", "finish"):
        messages = [getattr(side, step)(messages[1 - at]) for at, side in enumerate(sides)]
    total = plus(messages[0].held.numbers, messages[1].held.numbers)[: QUERIES * CLASSES]
    expected = ((votes[:, :, None] == np.arange(CLASSES)) * weights[:, :, None]).sum(axis=0)
    np.testing.assert_array_equal(total.reshape(QUERIES, CLASSES), expected)
    for at in range(2):
        held, kept = messages[at].held, messages[1 - at].kept
        np.testing.assert_array_equal(minus(kept.macs(held.numbers), held.macs), np.zeros_like(held.macs))
