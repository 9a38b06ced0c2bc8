"""Ten ways in which a server falsifies what it enters, as changes of the real check of inputs; and one that helps."""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from protocols.crypto.channel import pair
from protocols.crypto.field import P, minus, plus, times
from protocols.errors import ChannelClosed, MalformedMessage, Refused
from protocols.levels.two_server.circuit_inputs import InputCheck, _total
from protocols.levels.two_server.keyed_shares import KeyedShares
from protocols.levels.two_server.noise_pool import NoiseLaw
from protocols.levels.two_server.one_time_masks import PinnedExchange
from protocols.refusals.code import Code
from tests.harness.seeded import seeded_source
from tests.harness.two_server_cheats import ballots, shared
from tests.harness.two_server_sides import converse

VOTERS, QUERIES, CLASSES = 4, 3, 4
LAW = NoiseLaw(Fraction(5), CLASSES)
_UNITS = np.array([64], dtype=np.uint32)


class Shifting(InputCheck):
    """Adds a vote's worth of units to its share of one class of one query."""

    def _inputs(self, noise):
        numbers = super()._inputs(noise)
        numbers[1:2] = plus(numbers[1:2], _UNITS)
        return numbers


class ShiftingAll(InputCheck):
    """Adds something to every count."""

    def _inputs(self, noise):
        numbers = super()._inputs(noise)
        counts = slice(0, self._counts)
        numbers[counts] = plus(numbers[counts], 1 + np.arange(self._counts, dtype=np.uint32))
        return numbers


class ShiftingMasksToo(Shifting):
    """Shifts its masks against a shifted count, by what it guesses of the coin."""

    def _inputs(self, noise):
        numbers = super()._inputs(noise)
        masks = slice(self._counts, self._counts + 2)
        numbers[masks] = minus(numbers[masks], np.array([64 * 12_345], dtype=np.uint32))
        return numbers


class ShiftingWhatItOpens(Shifting):
    """Enters a shifted count, and shifts one voter's masked result so that the sums fit it."""

    def _products(self, coin):
        opened, keyed = super()._products(coin)
        voter = int(np.flatnonzero(self._weights[:, 0])[0])
        self.added = np.zeros_like(opened)
        for repetition in range(2):
            added = int(coin.r[repetition, 0, 1]) * 64 * pow(int(self._weights[voter, 0]), -1, P) % P
            self.added[voter, repetition, 0] = added
        return plus(opened, self.added), keyed


class ChoosingItsResult(ShiftingWhatItOpens):
    """Then opens the result that makes the sum zero, as far as it can tell, in the place of its own."""

    def run(self, exchange):
        real = exchange.of

        def of(step, message, size):
            return real(step, bytes(8) + message[8:] if step == "input results" else message, size)

        exchange.of = of
        return super().run(exchange)


class LeavingNoiseOut(InputCheck):
    """Enters no noise."""

    def _inputs(self, noise):
        return super()._inputs(np.zeros_like(noise))


class ChoosingNoise(InputCheck):
    """Enters noise that it likes."""

    def _inputs(self, noise):
        return super()._inputs(np.full_like(noise, 40))


class ClaimingOtherMacs(InputCheck):
    """Says that the macs of its sums are others."""

    def _entered(self, *given):
        held, kept = super()._entered(*given)
        held.macs[0, 0] ^= np.uint32(1)
        return held, kept


class OpeningOtherSeeds(InputCheck):
    """Searches for noise that it likes when it knows the first coin."""

    def _coin(self, at, number, promised):
        if at == 0:
            self._pool.seeds[:] = np.random.default_rng(1).integers(0, 256, self._pool.seeds.shape)
        return super()._coin(at, number, promised)


class ChoosingTheCoin(InputCheck):
    """Says another number of the second coin than it had committed to."""

    def _entered(self, *given):
        self._pool = replace(self._pool, numbers=(self._pool.numbers[0], bytes(32)))
        return super()._entered(*given)


class KnowingAHospitalsKeys(ShiftingWhatItOpens):
    """Shifts the masked result of a voter whose keys it has, `other_keys` being the other server's shares of them."""

    def _result(self, coin, opened, keyed):
        keys = plus(self._shares.keys, self.other_keys)
        return plus(super()._result(coin, opened, keyed), _total(times(times(self.added, keys), coin.rho)))


CHEATS = (
    Shifting, ShiftingAll, ShiftingMasksToo, ShiftingWhatItOpens, ChoosingItsResult, LeavingNoiseOut, ChoosingNoise,
    ClaimingOtherMacs, OpeningOtherSeeds, ChoosingTheCoin,
)  # fmt: skip


def sides(seed, *, cheat=None, cheater=0, voters=VOTERS, queries=QUERIES, classes=CLASSES, takes_part=None):
    """(votes, weights, both servers' checks); cheat: the class of the one at `cheater`, 0 the coordinator."""
    rng = np.random.default_rng(seed)
    votes = rng.integers(0, classes, (voters, queries))
    terms = ballots(voters=voters, queries=queries, classes=classes, takes_part=takes_part)
    coordinator, guardian = shared(votes, classes=classes, seed=seed)
    keyed = KeyedShares.of_coordinator(coordinator, terms), KeyedShares.of_guardian(guardian, terms)
    weights = rng.integers(1, 100, (voters, 1)) * terms.takes_part
    checks = [
        (cheat if cheat and at == cheater else InputCheck)(
            keyed[at], weights, NoiseLaw(LAW.sigma, classes), seed=seeded_source(seed, at, 7)(32), digest=terms.digest
        )
        for at in range(2)
    ]
    for at, check in enumerate(checks):
        check.other_keys = keyed[1 - at].keys
    return votes, weights, checks


def outcomes(checks, *, channels=None, pins=(lambda *_: None, lambda *_: None)):
    """What each server ends with: bound inputs, or the error that ended it."""

    def side(at):
        def run(channel):
            try:
                return checks[at].run(PinnedExchange(channel, leads=at == 0, pin=pins[at]))
            except (MalformedMessage, Refused, ChannelClosed) as error:
                return error

        return run

    return converse(side(0), side(1), channels=channels or pair(wait_s=300.0))


def noticed(seed, cheat, cheater):
    """Whether the honest server broke off because of the other."""
    _, _, checks = sides(seed, cheat=cheat, cheater=cheater)
    found = outcomes(checks)[1 - cheater]
    assert not isinstance(found, (MalformedMessage, ChannelClosed))
    return isinstance(found, Refused) and found.code == Code.FALSE_INPUTS
