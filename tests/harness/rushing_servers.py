"""Servers that rush in the check of inputs: they answer what they just heard, or shift so that one test fits."""

import numpy as np

from protocols.crypto.channel import elements
from protocols.crypto.field import P, minus, plus
from protocols.crypto.oblivious_transfer import BASE_ANSWER_BYTES
from protocols.levels.two_server.circuit_inputs import InputCheck
from protocols.levels.two_server.one_time_masks import opened_sum

_HASH = 32


class SendingBack(InputCheck):
    """A guardian that takes over all that the coordinator enters, as if it were its own: counts, masks and noise.

    It has numbers for the coins of its own, since a promise of one says whose it is. mended: whether what it opens of
    each vote is then its own again, which the second test would need.
    """

    mended = False

    def run(self, exchange):
        """The coordinator's messages, which it hears first, in the place of its own."""
        self._leads, channel, heard = False, exchange._channel, []

        def back(limit, change=lambda message: message):
            heard.append(channel.recv(limit))
            channel.send(change(heard[-1]))

        promised = b"".join(self._promise(False, at, number) for at, number in enumerate(self._pool.numbers))
        back(1 << 20, lambda said: said[:_HASH] + promised + said[3 * _HASH :])
        back(_HASH + BASE_ANSWER_BYTES, lambda said: self._pool.numbers[0] + said[_HASH:])
        back(1 << 24)
        back(_HASH, lambda said: self._pool.numbers[1])
        second = self._coin(1, heard[-1], heard[0][2 * _HASH : 3 * _HASH])
        coin = self._drawn(second)
        own, keyed = self._products(coin)
        content = own.astype("<u4").tobytes()
        back(1 << 20, lambda said: content + said[len(content) :] if self.mended else said)
        theirs = elements(heard[-1][: len(content)], own.shape)
        opened = plus(theirs, own if self.mended else theirs) * self._counted
        result = self._result(coin, opened, keyed)
        opened_sum(exchange, "input results", result, secret=self._seed, digest=self._digest)


class SendingBackAllButVotes(SendingBack):
    """The same, with shares of what is opened of the votes that are its own."""

    mended = True


class ShiftingTwoVotersAgainstEachOther(InputCheck):
    """Shifts two voters' masked results so that their weighted sum stays: what the macs are compared with."""

    def _products(self, coin):
        opened, keyed = super()._products(coin)
        added = np.zeros_like(opened)
        one, other = (int(self._weights[voter, 0]) for voter in range(2))
        added[0, :, 0] = 1
        added[1, :, 0] = (P - one) * pow(other, -1, P) % P
        return plus(opened, added), keyed


class ShiftingOneVoterInTwoQueries(InputCheck):
    """The same, of one voter in two queries."""

    def _products(self, coin):
        opened, keyed = super()._products(coin)
        one, other = (int(each) for each in self._weights[0, :2])
        added = np.zeros_like(opened)
        added[0, :, 0] = 1
        added[0, :, 1] = (P - one) * pow(other, -1, P) % P
        return plus(opened, added), keyed


class MovingACountToTheNextQuery(InputCheck):
    """Enters one query's counts in the place of another's, and its masks' sum as it is."""

    def _inputs(self, noise):
        numbers = super()._inputs(noise)
        classes = self._shares.classes
        first, second = slice(0, classes), slice(classes, 2 * classes)
        numbers[first], numbers[second] = numbers[second].copy(), numbers[first].copy()
        return numbers


class TakingNoiseOutOfTheCounts(InputCheck):
    """Enters its counts without the noise that will be added to them, as if it knew the order: it guesses the first."""

    def _inputs(self, noise):
        numbers = super()._inputs(noise)
        width = self._law.width
        rows = numbers[self._pooled].reshape(self._rows, width)
        numbers[:width] = minus(numbers[:width], rows[0])
        return numbers


RUSHING = (
    ShiftingTwoVotersAgainstEachOther, ShiftingOneVoterInTwoQueries, MovingACountToTheNextQuery,
    TakingNoiseOutOfTheCounts,
)  # fmt: skip
