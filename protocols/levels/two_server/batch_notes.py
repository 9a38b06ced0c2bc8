"""What each of two servers notes of a batch: checks begun, batches opened, evaluations, refused votes.

A batch is checked once: a server's ledger keeps what it was checked with, so that a repetition shows nothing new.

All that an honest server says in a check follows from its shares, its secret of the batch, and what the other server
said before. The secret is noted when the first check begins. What the other server said is noted before anything
follows from it, and so is who is checked; another value is refused. So a check that is broken off and repeated, however
often, is one check of which a part is sent again.

Each beginning is counted before anything is sent, so that a server which is killed has counted it too. A check that
did not end is in the log, with who broke it off; so is every repetition, whatever ended the check before.

How many batches of a study a server opens that are never settled: three, then it opens no other.

Whether the servers' evaluations of a batch agree is a bit, and a malicious server may choose of what (agreement.py).
Where they differ, no label is signed and the batch is never settled; nor is it if that server leaves with its bit. An
honest pair repeats a batch that broke off until it is settled, and a settled batch is not counted. Giving a batch up
does not uncount it: the other server is not told, and would only have the first one's word.

What this bounds is wrong guesses. Evaluations that agree are settled, and leave no trace.

The notes of one batch in a server's ledger: what must be found again after a stop.

How often a guardian refused a seat's votes where queries are hidden: after three batches it takes no more of them.

A hospital whose votes are refused cheats, or its software is broken, or else a server moved its share of them. A
refusal tells the servers nothing of a vote; but a hospital that offers votes of which some are malformed learns by it a
bit of the queries (inference/vote.py). At `two_server` these are public, and a bar would let one server shut a hospital
out: none is kept there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from protocols.crypto.randomness import RandomSource
from protocols.errors import ChannelClosed, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.refusals.code import Code

# How often the check of one batch may begin without ending, and how often its labels may be evaluated. A repetition
# shows nothing new, so this bounds no leak: it ends the retries of a server that stalls, of which each costs the other
# some seconds of its processor. An honest pair needs one for each time that its line breaks.
MOST_ATTEMPTS = 64
_SECRET_BYTES = 32

# Notes of a batch: a server's secret of the check; what it was checked with; that it ended.
_SECRET, _CHECKED = "check secret", "checked"


class OneCheck:
    """The check of one batch at one server. other: the other server, "coordinator" or "guardian"."""

    def __init__(self, ledger: Ledger, request: bytes, *, number: int, other: str) -> None:
        self._ledger, self._request = ledger, request
        self._number, self._other = number, other

    @property
    def begun(self) -> bool:
        """Whether a check of the batch ever began."""
        return self._ledger.noted(self._request, _begun(0)) is not None

    def secret(self, source: RandomSource) -> bytes:
        """This server's secret of the check: drawn from `source` once, and noted."""
        return self._ledger.note(self._request, _SECRET, source(_SECRET_BYTES))

    def pin(self, step: str, value: bytes) -> None:
        """Keeps what a step was done with. Raises Refused("other_coin"), ("other_check") for another than the first."""
        if self._ledger.note(self._request, f"check {step}", value) != value:
            if step == "coin":
                raise Refused(Code.OTHER_COIN, "the batch was checked before, under another coin")
            raise Refused(Code.OTHER_CHECK, f"the batch was checked before, with other {step}")

    def check_count(self) -> None:
        """Raises Refused("too_many_checks") if no more checks of this batch may begin."""
        if not self._ended and self._times == MOST_ATTEMPTS:
            raise Refused(Code.TOO_MANY_CHECKS, f"the check of the batch was broken off {MOST_ATTEMPTS} times")

    @contextmanager
    def attempt(self, voters: bytes) -> Iterator[Callable[[str, bytes], None]]:
        """One check, of the voters that these bytes name. Yields `pin`; raises Refused, and what the check raises."""
        with self._ledger.log.together():
            self.check_count()
            times = self._times
            if not self._ended:
                self._ledger.note(self._request, _begun(times), b"")
            if times > 0:
                self._ledger.log.append("checked_again", batch=self._number, times=times + 1)
        try:
            self.pin("voters", voters)
            yield self.pin
        except (ChannelClosed, MalformedMessage, Refused) as error:
            code = error.code if isinstance(error, Refused) else Code.MALFORMED
            by = self._other
            if isinstance(error, ChannelClosed):
                code, by = Code.UNREACHABLE, f"{self._other} or the line"
            self._ledger.log.append("check_broken_off", batch=self._number, by=by, code=code, times=times + 1)
            raise

    def end(self, refused: Sequence[str]) -> None:
        """Notes that the check ended, and logs the parties whose votes it refused, the first time."""
        with self._ledger.log.together():
            if refused and not self._ended:
                self._ledger.log.append("votes_refused", batch=self._number, parties=", ".join(refused))
            self._ledger.note(self._request, _CHECKED, b"")

    @property
    def _ended(self) -> bool:
        return self._ledger.noted(self._request, _CHECKED) is not None

    @property
    def _times(self) -> int:
        """How many checks began; beyond one that ended, repetitions are not counted here."""
        numbers = (at for at in range(MOST_ATTEMPTS) if self._ledger.noted(self._request, _begun(at)) is None)
        return next(numbers, MOST_ATTEMPTS)


def _begun(number: int) -> str:
    return f"check {number}"


# Honest servers leave a batch open only if it is given up between the opening and its settlement, or if a machine
# computes wrongly: three leave room for that.
MOST_OPENED = 3


class OpenedBatches:
    """Keeps in a server's ledger, under the study, the requests of batches that were opened and are not settled.

    other: the other server, as messages name it.
    """

    def __init__(self, ledger: Ledger, study: bytes, *, other: str) -> None:
        self._ledger, self._study, self._other = ledger, study, other

    def check(self, request: bytes | None = None) -> None:
        """Raises Refused("too_many_opened") if neither this batch, nor a new one if None, may be opened any more."""
        if self._settled(request) or request in (kept := [self._ledger.noted(self._study, kind) for kind in _KINDS]):
            return
        if all(each is not None and not self._settled(each) for each in kept):
            raise Refused(
                Code.TOO_MANY_OPENED,
                f"{MOST_OPENED} batches were opened with {self._other}, and not settled; allowed: these batches again",
            )

    def count(self, request: bytes) -> None:
        """Counts a batch before it is opened; again changes nothing. Raises as `check` does: then it is not counted."""
        with self._ledger.log.together():
            self.check(request)
            kept = {kind: self._ledger.noted(self._study, kind) for kind in _KINDS}
            if request in kept.values() or self._settled(request):
                return
            free = next(kind for kind, each in kept.items() if each is None or self._settled(each))
            self._ledger.forget(self._study, free)
            self._ledger.note(self._study, free, request)

    def _settled(self, request: bytes | None) -> bool:
        number = None if request is None else self._ledger.number_of(request)
        stored = None if number is None else self._ledger.stored(number)
        return stored is not None and stored.settled


_KINDS = tuple(f"opened {at}" for at in range(MOST_OPENED))


@dataclass(frozen=True)
class BatchNotes:
    """Notes under the digest of a batch's request.

    number: the batch's; other: the other server, for the log; opened: the batches of the study that were opened.
    """

    ledger: Ledger
    request: bytes
    number: int
    other: str
    opened: OpenedBatches

    def note(self, kind: str, value: bytes) -> bytes:
        """Stores a value of that kind unless there is one; returns the stored one."""
        return self.ledger.note(self.request, kind, value)

    def noted(self, kind: str) -> bytes | None:
        """The stored value, or None."""
        return self.ledger.noted(self.request, kind)

    def replace(self, kind: str, value: bytes) -> None:
        """Stores a value in the place of the one that is stored, in one step."""
        with self.ledger.log.together():
            self.forget(kind)
            self.note(kind, value)

    def forget(self, kind: str) -> None:
        """Deletes a value that is never needed again."""
        self.ledger.forget(self.request, kind)

    def pin_input(self, step: str, value: bytes) -> None:
        """Keeps what a step of the check of inputs was done with. Raises Refused("other_check") for another value."""
        if self.note(f"input {step}", value) != value:
            raise Refused(Code.OTHER_CHECK, f"the inputs of the batch were checked before, with another {step}")

    @contextmanager
    def logged_break(self) -> Iterator[None]:
        """Logs who broke off the computation of the labels, if it does not end. What ended it is raised on."""
        try:
            yield
        except (ChannelClosed, MalformedMessage, Refused) as error:
            code, by = error.code if isinstance(error, Refused) else Code.MALFORMED, self.other
            if isinstance(error, ChannelClosed):
                code, by = Code.UNREACHABLE, f"{self.other} or the line"
            self.ledger.log.append("labels_broken_off", batch=self.number, by=by, code=code)
            raise


# An accident of the line or the disk refuses no votes, so an honest pair never comes this far.
MOST_REFUSED = 3


class RefusedVotes:
    """Counts in the ledger, under the study, the batches in which each seat's votes were refused.

    hidden: whether queries are; otherwise nothing is counted, and nobody barred.
    """

    def __init__(self, ledger: Ledger, study: bytes, *, hidden: bool) -> None:
        self._ledger, self._study, self._hidden = ledger, study, hidden

    def count(self, seats: Iterable[str], request: bytes) -> None:
        """Counts one batch, by its request, for each of these seats; again changes nothing."""
        with self._ledger.log.together():
            for seat in seats if self._hidden else ():
                for at in range(MOST_REFUSED):
                    if self._ledger.note(self._study, _kind(seat, at), request) == request:
                        break

    def barred(self, seats: Iterable[str]) -> Bool[ndarray, " seats"]:
        """Of which seats no further batch takes votes: those of as many batches were refused."""
        kept = [[self._ledger.noted(self._study, _kind(seat, at)) for at in range(MOST_REFUSED)] for seat in seats]
        return np.array([None not in each for each in kept], dtype=np.bool_)


def _kind(seat: str, at: int) -> str:
    return f"refused {at} {seat}"
