"""Which parties did not answer by the deadline, so that the next rounds do not wait for each of them again.

A round still asks everybody, and takes every answer that comes before the others have answered; it only does not wait
until the deadline for a party that was silent before. One that is not connected is waited for again when it connects;
one that is connected after 1, 2, 4 ... rounds, and one that keeps connecting without answering likewise. So k absent
parties cost a labelling one deadline, and not one in every round.

Who is waited for depends on who answered when, and on nothing else: absence is assumed not to depend on patients
(docs/explanation/threat-model.md), and a round's quorum is as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

# Rounds between two that wait for a silent party, at most.
_MOST_ROUNDS = 64
# How often in a row a party that connects is waited for at once, though it did not answer the last time.
_FORGIVEN = 3


@dataclass(frozen=True)
class Silence:
    """A party that did not answer. since_s: seconds since 1970; times: deadlines in a row that it missed; rounds: how
    many rounds do not wait for it."""

    since_s: float
    times: int
    rounds: int


class Silences:
    """The silent parties of one coordinator. Used on the hub's event loop; `of` may be read from any thread.

    clock: seconds since 1970.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.of: dict[str, Silence] = {}
        self._clock = clock

    def spared(self, parties: Collection[str], connected: Collection[str], *, needed: int) -> frozenset[str]:
        """Those of a round's parties for which it does not wait: called once a round.

        needed: how many of the parties a round needs; if the others are fewer, it waits for all that are connected.
        """
        found = set()
        for party in parties:
            known = self.of.get(party)
            if known is None:
                continue
            if party not in connected:
                found.add(party)
            elif known.rounds > 0:
                self.of[party] = Silence(known.since_s, known.times, known.rounds - 1)
                found.add(party)
        if len(set(parties) - found) < needed:
            found -= set(connected)
        return frozenset(found)

    def missed(self, party: str) -> None:
        """The party was waited for until the deadline, and did not answer."""
        known = self.of.get(party)
        times = 1 if known is None else known.times + 1
        since_s = self._clock() if known is None else known.since_s
        self.of[party] = Silence(since_s, times, min(2 ** (times - 1), _MOST_ROUNDS))

    def connected(self, party: str) -> None:
        """The party has connected: the next round waits for it, unless it has done so in vain several times."""
        known = self.of.get(party)
        if known is not None and known.times <= _FORGIVEN:
            self.of[party] = Silence(known.since_s, known.times, 0)

    def answered(self, party: str) -> None:
        """The party answered in time."""
        self.of.pop(party, None)
