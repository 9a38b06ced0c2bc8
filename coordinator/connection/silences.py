"""Which parties did not answer by the deadline, so that rounds do not wait the whole deadline for each of them again.

A round still asks everybody, and takes every answer that comes before the others have answered; it only does not wait
until the deadline for a party that was silent before. One that is not connected is waited for again when it connects.
One that is connected is waited for in full again when it has answered or after 2, 4, 8 ... 64 deadlines; after three
silences only the time counts, so a party that answers between its silences gains nothing. So k absent parties cost a
labelling one deadline, and not one in every round; a party that is silent on purpose costs it a small part of its time.

Who is waited for depends on who answered when, and on nothing else: absence is assumed not to depend on patients
(docs/explanation/threat-model.md), and a round's quorum is as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

# Deadlines between two rounds that wait for a silent party, at most; after as many without a silence it is forgotten.
_MOST_DEADLINES = 64
# Silences after which a party is waited for again as soon as it connects or answers.
_FORGIVEN = 3


@dataclass(frozen=True)
class Silence:
    """A party that did not answer. since_s: when it was first asked in vain, in seconds since 1970; times: deadlines
    that it missed; answered: whether it has answered since; until_s, forgotten_s: when it is waited for again, and when
    this is forgotten if it answers, by the loop's clock."""

    since_s: float
    times: int
    answered: bool
    until_s: float
    forgotten_s: float


class Silences:
    """The silent parties of one coordinator. Used on the hub's event loop; `of` may be read from any thread.

    now_s: by the loop's clock; clock: seconds since 1970.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.of: dict[str, Silence] = {}
        self._clock = clock

    def spared(
        self, parties: Collection[str], connected: Collection[str], *, others: int, needed: int, now_s: float
    ) -> frozenset[str]:
        """Those of a round's parties for which it does not wait until the deadline.

        others: parties that are asked apart from this round, and expected to answer; needed: how many a batch needs. If
        too few are waited for, the round waits for all that are connected.
        """
        found = {party for party in parties if not self.expected(party, connected, now_s=now_s)}
        if others + len(set(parties) - found) < needed:
            found -= set(connected)
        return frozenset(found)

    def expected(self, party: str, connected: Collection[str], *, now_s: float) -> bool:
        """Whether to wait for a party: it was not silent before, or it is time to wait for it again."""
        known = self.of.get(party)
        return known is None or (party in connected and now_s >= known.until_s)

    def missed(self, party: str, *, deadline_s: float, now_s: float) -> None:
        """The party was waited for until the deadline, and did not answer. deadline_s: of the study."""
        known = self.of.get(party)
        times = 1 if known is None else known.times + 1
        since_s = self._clock() if known is None or known.answered else known.since_s
        pause_s, forget_s = min(2**times, _MOST_DEADLINES) * deadline_s, _MOST_DEADLINES * deadline_s
        self.of[party] = Silence(since_s, times, False, now_s + pause_s, now_s + forget_s)

    def connected(self, party: str) -> None:
        """The party has connected: the next round waits for it, unless it was silent several times."""
        known = self.of.get(party)
        if known is not None and known.times <= _FORGIVEN:
            self.of[party] = replace(known, until_s=0.0)

    def answered(self, party: str, *, now_s: float) -> None:
        """The party answered in time."""
        known = self.of.get(party)
        if known is None:
            return
        if now_s >= known.forgotten_s:
            del self.of[party]
        else:
            until_s = 0.0 if known.times <= _FORGIVEN else known.until_s
            self.of[party] = replace(known, answered=True, until_s=until_s)
