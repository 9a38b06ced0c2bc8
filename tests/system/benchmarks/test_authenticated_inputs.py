"""The prototype of authenticated inputs: honest servers always agree, and servers that deviate are noticed.

Where a cheat is noticed with probability 1 - 2^-57 or so, every trial must notice it; where the probability is stated,
the number of unnoticed trials is compared with it at a false-alarm rate below 1e-6.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from benchmarks.authenticated_inputs.input_check import InputCheck, Transfers
from benchmarks.authenticated_inputs.linear_macs import Held, Kept
from benchmarks.authenticated_inputs.masks import KeyedShares
from benchmarks.authenticated_inputs.noise_pool import (
    ROWS_A_QUERY,
    NoiseLaw,
    NoisePool,
    check_opening,
    row_order,
    unnoticed,
)  # fmt: skip
from protocols.crypto.base_transfers import ANSWER_BYTES
from protocols.crypto.field import BITS, P, from_integers, minus, plus, times
from protocols.errors import MalformedMessage

FALSE_ALARM = 1e-6
VOTERS, QUERIES, CLASSES = 4, 3, 4
LAW = NoiseLaw((Fraction(5), Fraction(9)), (CLASSES, 1))
STEPS = ("agree", "enter", "draw", "open", "promise", "result", "finish")


def element(value):
    return np.array([value], dtype=np.uint32)


def uniform(rng, *shape):
    return rng.integers(0, P, shape).astype(np.uint32)


def dealt(rng, *, voters=VOTERS, queries=QUERIES, classes=CLASSES):
    """One-hot votes, and both servers' shares of them and of what the vote check leaves."""
    votes = (rng.integers(0, classes, (voters, queries))[:, :, None] == np.arange(classes)).astype(np.uint32)
    keys, masks = uniform(rng, voters, 2, queries), uniform(rng, voters, 2, queries)
    whole = (votes, times(keys[..., None], votes[:, None]), keys, masks, times(keys, masks))
    weights = np.repeat(rng.integers(0, 100, (voters, 1)), queries, axis=1)
    one = [uniform(rng, *each.shape) for each in whole]
    two = [minus(each, share) for each, share in zip(whole, one, strict=True)]
    return votes, weights, KeyedShares(*one), KeyedShares(*two)


class DealtTransfers:
    """One side of transfers that a dealer deals, which take no time."""

    offer = bytes(32)

    def __init__(self, rng):
        self._both = [(rng.bytes(32), rng.bytes(32)) for _ in range(128)]
        self._bits = rng.integers(0, 2, 128).astype(bool)
        self.other = self

    def pairs(self, answer):
        return self._both

    def chosen(self, offer):
        seeds = [both[choice] for both, choice in zip(self.other._both, self._bits.astype(int), strict=True)]
        return self._bits, seeds, bytes(ANSWER_BYTES)


def dealt_transfers(rng):
    one, two = DealtTransfers(rng), DealtTransfers(rng)
    one.other, two.other = two, one
    return one, two


def pair(rng, *, cheat=None, cheater=0, law=LAW, **sizes):
    """Both sides of a check; `cheat` is the class of the side that deviates."""
    votes, weights, *shares = dealt(rng, **sizes)
    transfers = dealt_transfers(rng)
    sides = [
        (cheat if cheat and side == cheater else InputCheck)(
            shares[side],
            weights,
            law,
            first=side == 0,
            secret=rng.bytes(32),
            digest=bytes(32),
            transfers=transfers[side],
        )
        for side in range(2)
    ]
    return votes, weights, sides


def run(sides):
    """What each side ends with. A side that deviates says nothing of what it noticed itself."""
    messages = [side.commitment() for side in sides]
    for step in STEPS:
        messages = [getattr(side, step)(messages[1 - at]) for at, side in enumerate(sides)]
    return messages


def total(values):
    """The sum over voters and queries, of each repetition."""
    return (values.astype(np.uint64).sum(axis=(0, 2)) % np.uint64(P)).astype(np.uint32)


def noticed(rng, cheat, cheater):
    """Whether the honest side broke the check off."""
    _, _, sides = pair(rng, cheat=cheat, cheater=cheater)
    sides[cheater].others_keys = sides[1 - cheater]._shares.keys
    messages = [side.commitment() for side in sides]
    for step in STEPS:
        try:
            honest = getattr(sides[1 - cheater], step)(messages[cheater])
        except MalformedMessage:
            return True
        try:
            deviating = getattr(sides[cheater], step)(messages[1 - cheater])
        except MalformedMessage:
            # The deviating side would go on; it only has no result of its own.
            assert step == "finish"
        messages = [deviating, honest] if cheater == 0 else [honest, deviating]
    return False


@settings(max_examples=6)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(2, 6), st.integers(0, 2**32))
def test_honest_servers_end_with_the_counts_and_macs_that_fit(voters, queries, classes, seed):
    rng = np.random.default_rng(seed)
    law = NoiseLaw((Fraction(7, 2),), (classes,))
    votes, weights, sides = pair(rng, law=law, voters=voters, queries=queries, classes=classes)
    bound = run(sides)
    counts = queries * classes
    total = plus(bound[0].held.numbers, bound[1].held.numbers)[:counts].reshape(queries, classes)
    np.testing.assert_array_equal(total, (votes * weights[..., None]).sum(axis=0))
    for at in range(2):
        np.testing.assert_array_equal(bound[1 - at].kept.macs(bound[at].held.numbers), bound[at].held.macs)


def test_a_repeated_check_uses_the_same_noise():
    rng = np.random.default_rng(0)
    _, weights, *shares = dealt(rng)
    used = []
    for _ in range(2):
        sides = [
            InputCheck(
                shares[side],
                weights,
                LAW,
                first=side == 0,
                secret=bytes([side]) * 32,
                digest=bytes(32),
                transfers=Transfers(rng.bytes),
            )
            for side in range(2)
        ]
        used.append([bound.held.numbers for bound in run(sides)])
    np.testing.assert_array_equal(used[0], used[1])


class ShiftsOneCount(InputCheck):
    """Adds a vote's worth of units to its share of one class of one query."""

    def _inputs(self, noise):
        numbers = super()._inputs(noise)
        numbers[1:2] = plus(numbers[1:2], element(64))
        return numbers


class ShiftsManyCounts(InputCheck):
    def _inputs(self, noise):
        numbers = super()._inputs(noise)
        counts = QUERIES * CLASSES
        numbers[:counts] = plus(numbers[:counts], np.arange(counts, dtype=np.uint32))
        return numbers


class ShiftsCountAndMask(ShiftsOneCount):
    """Shifts its masks against a shifted count, by what it guesses of the coin."""

    def _inputs(self, noise):
        numbers = super()._inputs(noise)
        masks = slice(QUERIES * CLASSES, QUERIES * CLASSES + 2)
        numbers[masks] = minus(numbers[masks], element(64 * 12_345))
        return numbers


class ShiftsWhatItOpens(ShiftsOneCount):
    """Enters a shifted count, and shifts one voter's masked result so that the sums fit it."""

    def open(self, theirs):
        message = bytearray(super().open(theirs))
        voter = int(np.flatnonzero(self._weights[:, 0])[0])
        weight = int(self._weights[voter, 0])
        self.added = np.zeros_like(self._opened)
        for repetition in range(2):
            added = int(self._drawn.r[repetition, 0, 1]) * 64 * pow(weight, -1, P) % P
            at = (voter, repetition, 0)
            self.added[at] = added
        self._opened = plus(self._opened, self.added)
        message[: self._opened.nbytes] = self._opened.astype("<u4").tobytes()
        return bytes(message)


class KnowsAHospitalsKeys(ShiftsWhatItOpens):
    """Shifts the masked result of a voter whose keys it has, and its own result by what that changes."""

    def promise(self, theirs):
        super().promise(theirs)
        keys = plus(self._shares.keys, self.others_keys)
        self._result = plus(self._result, total(times(times(self.added, keys), self._drawn.rho)))
        return self._sealed(self._first, 2, self._result.astype("<u4").tobytes(), self._salt_of(2))


class LeavesNoiseOut(InputCheck):
    def _inputs(self, noise):
        return super()._inputs(np.zeros_like(noise))


class ChoosesAllNoise(InputCheck):
    def _inputs(self, noise):
        return super()._inputs(np.full_like(noise, 40))


class ClaimsOtherMacs(InputCheck):
    def open(self, theirs):
        self._held.macs[0, 0] ^= np.uint32(1)
        return super().open(theirs)


class OpensOtherSeeds(InputCheck):
    """Searches for noise that it likes only after it knows the first coin."""

    def enter(self, theirs):
        self._pool.seeds[:] = np.random.default_rng(1).integers(0, 256, self._pool.seeds.shape)
        return super().enter(theirs)


class ChoosesTheCoin(InputCheck):
    """Replaces its number of the second coin after it committed to another."""

    def draw(self, theirs):
        return np.random.default_rng().bytes(32) + super().draw(theirs)[32:]


class ChoosesItsResult(ShiftsWhatItOpens):
    """Opens a shifted masked vote, and then the result that makes the sum zero."""

    def result(self, theirs):
        return np.random.default_rng().bytes(4) + super().result(theirs)[4:]


EVERY_TRIAL = [
    ShiftsOneCount, ShiftsManyCounts, ShiftsCountAndMask, ShiftsWhatItOpens, LeavesNoiseOut, ChoosesAllNoise,
    ClaimsOtherMacs, OpensOtherSeeds, ChoosesTheCoin, ChoosesItsResult,
]  # fmt: skip


@pytest.mark.parametrize("cheater", [0, 1], ids=["coordinator", "guardian"])
@pytest.mark.parametrize("cheat", EVERY_TRIAL)
def test_a_server_that_deviates_is_noticed_every_time(cheat, cheater):
    rng = np.random.default_rng(2)
    assert all(noticed(rng, cheat, cheater) for _ in range(4))


@pytest.mark.parametrize("cheater", [0, 1], ids=["coordinator", "guardian"])
def test_a_server_that_has_one_hospitals_keys_is_not_noticed(cheater):
    """What the check does not do: a server and a hospital that help each other shift counts by any amount."""
    rng = np.random.default_rng(8)
    assert not any(noticed(rng, KnowsAHospitalsKeys, cheater) for _ in range(4))


def test_noise_falsified_in_a_row_goes_unnoticed_as_often_as_stated():
    falsified, trials, rows = 2, 600, ROWS_A_QUERY * QUERIES
    rng = np.random.default_rng(3)
    pool, coin = NoisePool.of(rng.bytes(32), rows), rng.bytes(32)
    numbers = from_integers(LAW.rows(pool.seeds, coin))
    numbers[:falsified, 0] = plus(numbers[:falsified, 0], element(1000))
    alphas, macs = uniform(rng, 2), uniform(rng, 2, numbers.size)
    held = Held(numbers.reshape(-1), macs)
    kept = Kept(alphas, plus(times(alphas[:, None], held.numbers), macs))
    missed = 0
    for _ in range(trials):
        order = row_order(rng.bytes(32), rows)
        opening = pool.opening(order, QUERIES, held)
        try:
            check_opening(opening, pool.commitment, order=order, queries=QUERIES, law=LAW, coin=coin, kept=kept)
        except MalformedMessage:
            assert (order[QUERIES:] < falsified).any()
        else:
            missed += 1
    stated = unnoticed(falsified, queries=QUERIES)
    assert stated <= ROWS_A_QUERY**-falsified
    assert binomtest(missed, trials, stated).pvalue > FALSE_ALARM


def test_transfers_with_errors_cost_half_the_chance_for_each_bit_and_never_bind_another_number():
    """The holder uses another number for one bit of alpha: it passes only where that bit is zero, with the true one."""
    trials = 30

    class ErrsInOneBit(InputCheck):
        def enter(self, theirs):
            message = bytearray(super().enter(theirs))
            shape = (2, BITS, len(self._held.numbers))
            sent = np.frombuffer(message, dtype="<u4").reshape(shape)
            sent[0, 3, :1] = plus(sent[0, 3, :1], element(5))
            return bytes(message)

    rng, passed = np.random.default_rng(4), 0
    for _ in range(trials):
        *_, sides = pair(rng, cheat=ErrsInOneBit)
        try:
            bound = run(sides)
        except MalformedMessage:
            assert sides[1]._keeper.alphas[0] >> 3 & 1
            continue
        passed += 1
        assert not bound[1].kept.alphas[0] >> 3 & 1
        np.testing.assert_array_equal(bound[1].kept.macs(bound[0].held.numbers), bound[0].held.macs)
    assert binomtest(passed, trials, 0.5).pvalue > FALSE_ALARM


def test_what_is_opened_of_a_vote_is_uniform_whatever_the_vote():
    """The high bit of U, under 2000 dealings of two fixed votes: half of them set."""
    for vote in range(2):
        opened = []
        rng = np.random.default_rng(vote)
        keys, masks = uniform(rng, 500, 2, 2), uniform(rng, 500, 2, 2)
        votes = np.zeros((500, 2, CLASSES), dtype=np.uint32)
        votes[..., vote] = 1
        whole = KeyedShares(votes, times(keys[..., None], votes[:, None]), keys, masks, times(keys, masks))
        zero = whole.counted(np.zeros((500, 2), dtype=bool))
        weights = np.ones((500, 2), dtype=np.int64)
        transfers = dealt_transfers(rng)
        sides = [
            InputCheck(
                shares, weights, LAW, first=at == 0, secret=rng.bytes(32), digest=bytes(32), transfers=transfers[at]
            )
            for at, shares in enumerate((whole, zero))
        ]
        run(sides)
        opened = sides[0]._opened
        assert binomtest(int((opened >> 30 & 1).sum()), opened.size, 0.5).pvalue > FALSE_ALARM
