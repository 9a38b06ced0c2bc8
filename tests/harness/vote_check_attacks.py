"""Programs of servers that cheat in the check of votes to read them: the coordinator's, and the guardian's.

Each is the honest program with these changes. It shifts what it opens of one query of each voter by d, which moves that
query's term by d (2 s + d + k). Were there no key k, it would know the term for every class that s may stand for. So it
moves its share of the results by minus what class GUESS would add, and the test that follows is zero if that is the
vote.
"""

from dataclasses import dataclass, field

import numpy as np

from protocols.crypto.channel import elements, receive
from protocols.crypto.field import minus, plus, times
from protocols.crypto.prg import derived_key
from protocols.levels.two_server import shares
from protocols.levels.two_server.shares import coordinator_blinds, guardian_blinds, guardian_determined, guardian_votes
from protocols.levels.two_server.sketch import _challenge, _Own, _Sketch

CLASSES, GUESS = 3, 1
SHIFT = np.array([12345], dtype=np.uint32)
STEPS = ("blinded sums", "masked results", "tests")


@dataclass
class Attack:
    """What an attacking server does, and what it read.

    query: the one whose votes are read; rushing: the step in which it opens something else than it committed to, after
    it saw the other's message ("" for none); stops: the step at which it breaks off.
    """

    query: int = 0
    rushing: str = ""
    stops: str = ""
    zeros: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @property
    def guesses(self):
        """The class of each voter: GUESS if its test was zero; else one of the others, as they come."""
        others = [each for each in range(CLASSES) if each != GUESS]
        return np.where(self.zeros, GUESS, np.resize(others, len(self.zeros)))

    def shifted(self, blinded):
        moved = blinded.copy()
        moved[:, :, self.query] = plus(moved[:, :, self.query], SHIFT)
        return moved

    def guessed(self, masked, challenge):
        """The masked results moved by minus what the shift would add for class GUESS, were k zero."""
        r = challenge.points[self.query, GUESS]
        added = times(times(challenge.of_results[:, self.query], SHIFT), plus(plus(r, r), SHIFT))
        return np.stack([masked[0], minus(masked[1], added)])

    def coordinator(self, channel, share, ballots, *, secret, pin):
        """In the place of `coordinator_checks`."""
        mine = _Own(secret, ballots)
        channel.send(ballots.digest + mine.commitment("number", mine.number))
        answer = receive(channel, 64, "number")
        challenge = _challenge(derived_key("challenge", ballots.context, mine.number, answer[32:]), ballots)
        blinds = coordinator_blinds(share.seeds, queries=ballots.queries, context=ballots.context)
        sketch = _Sketch(ballots, challenge, blinds, share.constants, share.products)
        sketch.take(slice(None), share.votes, share.keyed)
        opening = mine.opening("number", mine.number)

        def exchanged(step, values):
            channel.send(opening + mine.commitment(step, values.astype("<u4").tobytes()))
            theirs = elements(receive(channel, values.nbytes, step), values.shape)
            if self.stops == step:
                channel.close()
            # Rushing: it answers so that the sum is what it likes.
            said = minus(np.zeros_like(theirs), theirs) if self.rushing == step else values
            return plus(values, theirs), mine.opening(step, said.astype("<u4").tobytes())

        z, opening = exchanged("blinded sums", self.shifted(sketch.blinded))
        masked = self.guessed(sketch.masked(z, mine.factors, leads=True), challenge)
        opened, opening = exchanged("masked results", masked)
        total, opening = exchanged("tests", sketch.tested(opened, leads=True))
        channel.send(opening)
        self.zeros = ~total.any(axis=1)
        return np.ones(len(total), dtype=bool)

    def guardian(self, channel, share, ballots, *, secret, pin):
        """In the place of `guardian_checks`."""
        mine, sizes = _Own(secret, ballots), {"queries": ballots.queries, "context": ballots.context}
        receive(channel, 64, "commitment")
        channel.send(ballots.digest + mine.number)
        number = receive(channel, 96, "number")[:32]
        challenge = _challenge(derived_key("challenge", ballots.context, number, mine.number), ballots)
        determined = guardian_determined(share.seeds, classes=ballots.classes, **sizes)
        blinds = guardian_blinds(share.seeds, **sizes)
        sketch = _Sketch(ballots, challenge, blinds, determined.constants, determined.products)
        sketch.take(slice(None), guardian_votes(share.seeds, classes=ballots.classes, **sizes), determined.keyed)

        def exchanged(step, values, commitment_bytes=32):
            channel.send(values.astype("<u4").tobytes())
            data = receive(channel, values.nbytes + 32 + commitment_bytes, step)
            if self.stops == step:
                channel.close()
            return plus(values, elements(data[: values.nbytes], values.shape))

        z = exchanged("blinded sums", self.shifted(sketch.blinded))
        masked = self.guessed(sketch.masked(z, mine.factors, leads=False), challenge)
        total = exchanged("tests", sketch.tested(exchanged("masked results", masked), leads=False), 0)
        self.zeros = ~total.any(axis=1)
        return np.ones(len(total), dtype=bool)


def without_keys(monkeypatch):
    """Every party's keys are zero: A = -2 a at both servers."""
    blinds = shares._blinds

    def keyless(*args):
        made = blinds(*args)
        return shares.Blinds(
            made.points, minus(np.zeros_like(made.points), plus(made.points, made.points)), made.factors
        )

    monkeypatch.setattr(shares, "_blinds", keyless)
