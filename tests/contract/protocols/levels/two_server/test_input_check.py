"""The check of the servers' inputs: honest servers always agree, and a server that enters falsely is noticed.

Where a cheat is noticed but for a probability of 2^-57 or so, every trial must notice it; where the probability is
stated, the number of unnoticed trials is compared with it at a false-alarm rate below 1e-6.
"""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from protocols.crypto.channel import pair
from protocols.crypto.field import P, from_integers, minus, plus, times
from protocols.crypto.linear_macs import Held, Kept
from protocols.errors import Refused
from protocols.levels.two_server.noise_pool import ROWS_A_QUERY, NoiseLaw, NoisePool, check_opening, noise_of, row_order
from protocols.refusals.code import Code
from tests.harness.input_cheats import CHEATS, CLASSES, LAW, QUERIES, KnowingAHospitalsKeys, noticed, outcomes, sides
from tests.harness.kept_messages import Cut, Sent
from tests.harness.two_server_sides import centred

FALSE_ALARM = 1e-6
SERVERS = pytest.mark.parametrize("cheater", [0, 1], ids=["coordinator", "guardian"])


def fits(holder, keeper):
    """Whether the macs of one server's numbers are those under the other's alphas."""
    expected = plus(times(keeper.alphas[:, None, None], holder.numbers), holder.macs)
    return (keeper.keys == expected).all()


@settings(max_examples=5)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(2, 5), st.integers(0, 2**32))
def test_honest_servers_end_with_counts_noise_and_macs_that_fit(voters, queries, classes, seed) -> None:
    takes_part = np.random.default_rng(seed).random((voters, queries)) < 0.8
    votes, weights, checks = sides(seed, voters=voters, queries=queries, classes=classes, takes_part=takes_part)
    one, other = outcomes(checks)
    assert fits(one, other)
    assert fits(other, one)
    counts = ((votes[:, :, None] == np.arange(classes)) * weights[:, :, None]).sum(axis=0)
    noise = noise_of(tuple(each._seed for each in checks), NoiseLaw(LAW.sigma, classes), queries=queries)
    np.testing.assert_array_equal(centred(plus(one.numbers, other.numbers)), counts + sum(noise))


@SERVERS
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_server_that_enters_falsely_is_noticed_every_time(cheat, cheater) -> None:
    assert all(noticed(seed, cheat, cheater) for seed in range(2))


@SERVERS
def test_a_server_that_has_one_hospitals_keys_is_not_noticed(cheater) -> None:
    """What the check does not do: a server and a hospital that help each other shift counts by any amount."""
    assert not noticed(0, KnowingAHospitalsKeys, cheater)


def test_one_seed_for_all_rows_is_noise_of_its_own_in_each() -> None:
    """Else a server would have one draw in every query of a batch, and could choose the best of a few batches."""
    checks = sides(0, queries=30, cheat=OneSeed)[2]
    assert not any(isinstance(each, Refused) for each in outcomes(checks))
    rows = checks[0]._pool.rows(LAW, bytes(32))
    assert len(np.unique(rows, axis=0)) == len(rows)


class OneSeed(type(sides(0)[2][0])):
    """Commits to one seed for all rows of noise."""

    def __init__(self, *given, seed, digest):
        super().__init__(*given, seed=seed, digest=digest)
        self._pool.seeds[:] = self._pool.seeds[0]


def test_noise_falsified_in_rows_goes_unnoticed_as_often_as_stated() -> None:
    falsified, trials, rows = 2, 600, ROWS_A_QUERY * QUERIES
    rng = np.random.default_rng(3)
    pool, coin = NoisePool.of(rng.bytes(32), queries=QUERIES), rng.bytes(32)
    numbers = from_integers(pool.rows(LAW, coin))
    numbers[:falsified, 0] = plus(numbers[:falsified, 0], np.array([1000], dtype=np.uint32))
    alphas, macs = (rng.integers(0, P, shape).astype(np.uint32) for shape in (2, (2, numbers.size)))
    held = Held(numbers.reshape(-1), macs)
    kept = Kept(alphas, plus(times(alphas[:, None], held.numbers), macs))
    missed = 0
    for _ in range(trials):
        order = row_order(rng.bytes(32), rows)
        opening = pool.opening(order, QUERIES, held)
        try:
            check_opening(opening, pool.commitment, order=order, queries=QUERIES, law=LAW, coin=coin, kept=kept)
        except Refused:
            assert (order[QUERIES:] < falsified).any()
        else:
            missed += 1
    stated = comb(QUERIES, falsified) / comb(rows, falsified)
    assert stated <= ROWS_A_QUERY**-falsified
    assert binomtest(missed, trials, stated).pvalue > FALSE_ALARM


def transcript(checks, *, cut=None):
    """All that both servers said, up to where the guardian's line is cut."""
    said = [], []
    coordinators, guardians = (Sent(end, kept) for end, kept in zip(pair(wait_s=300.0), said, strict=True))
    outcomes(checks, channels=(coordinators, guardians if cut is None else Cut(guardians, cut, [])))
    return said


def test_an_attempt_that_is_cut_anywhere_and_repeated_sends_byte_for_byte_the_same() -> None:
    whole = transcript(sides(1)[2])
    assert len(whole[0]) == len(whole[1]) == 7
    for cut in range(14):
        for kept, sent in zip(transcript(sides(1)[2], cut=cut), whole, strict=True):
            assert kept == sent[: len(kept)]


class Pins(dict):
    """What a ledger keeps of a check."""

    def __call__(self, step, value):
        if self.setdefault(step, value) != value:
            raise Refused(Code.OTHER_CHECK, f"another {step}")


@SERVERS
def test_a_server_that_comes_again_with_another_seed_is_refused_before_a_second_coin_opens_anything(cheater) -> None:
    pins = Pins(), Pins()
    outcomes(sides(1)[2], pins=pins)
    again = sides(1)[2]
    again[cheater] = sides(1, cheat=OtherSeed, cheater=cheater)[2][cheater]
    pins[cheater].clear()
    said = [], []
    ends = tuple(Sent(end, kept) for end, kept in zip(pair(wait_s=300.0), said, strict=True))
    refused = outcomes(again, pins=pins, channels=ends)[1 - cheater]
    assert isinstance(refused, Refused)
    assert "another promise" in str(refused)
    assert len(said[1 - cheater]) <= 1


class OtherSeed(type(sides(0)[2][0])):
    """A server that has forgotten what it noted."""

    def __init__(self, *given, seed, digest):
        super().__init__(*given, seed=bytes(32), digest=digest)


def test_what_is_opened_of_a_vote_is_uniform_whatever_the_vote() -> None:
    """The high bit of U over the dealings of two fixed votes: half of them set."""
    kept: dict[int, list] = {0: [], 1: []}
    for dealing in range(10):
        votes, _, checks = sides(dealing, voters=25, queries=2, classes=2)
        said = transcript(checks)
        parts = [np.frombuffer(each[4], "<u4", count=25 * 2 * 2).reshape(25, 2, 2) for each in said]
        opened = plus(*parts)
        for vote in (0, 1):
            kept[vote].append(opened.transpose(0, 2, 1)[votes == vote].reshape(-1))
    for values in kept.values():
        flat = np.concatenate(values)
        assert binomtest(int((flat >> 30 & 1).sum()), flat.size, 0.5).pvalue > FALSE_ALARM


def test_a_holder_that_errs_in_one_bit_of_alpha_passes_where_that_bit_is_zero_and_enters_no_other_number() -> None:
    outcome = {True: 0, False: 0}
    for seed in range(10):
        one, other = outcomes(sides(seed, cheat=ErringInOneBit)[2])
        passed = not isinstance(other, Refused)
        outcome[passed] += 1
        if passed:
            assert not other.alphas[0] >> 3 & 1
            assert fits(one, other)
    assert min(outcome.values()) > 0


class ErringInOneBit(type(sides(0)[2][0])):
    """Uses another number for one bit of the other's first alpha."""

    def _entered(self, exchange, *given):
        real = exchange.of_parts

        def of_parts(step, messages, sizes):
            return real(step, map(erring, messages), sizes)

        exchange.of_parts = of_parts
        return super()._entered(exchange, *given)


def erring(message):
    sent = np.frombuffer(message, dtype="<u4").reshape(2, 31, -1).copy()
    sent[0, 3, 0] = minus(sent[0, 3, :1], np.array([5], dtype=np.uint32))[0]
    return sent.tobytes()


def test_more_numbers_than_a_chunk_holds_are_entered_as_well(monkeypatch) -> None:
    monkeypatch.setattr("protocols.levels.two_server.circuit_inputs._CHUNK", 7)
    one, other = outcomes(sides(2, queries=1, classes=CLASSES)[2])
    assert fits(one, other)
    assert fits(other, one)


@SERVERS
def test_servers_that_differ_in_who_counts_stop_before_anything_is_entered(cheater) -> None:
    checks = sides(3)[2]
    checks[cheater] = sides(3, takes_part=np.arange(4)[:, None] * np.ones(3) > 0)[2][cheater]
    found = outcomes(checks)[1 - cheater]
    assert "differ in the batch" in str(found)
