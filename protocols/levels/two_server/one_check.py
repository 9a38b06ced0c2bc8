"""A batch is checked once: a server's ledger keeps what it was checked with, so that a repetition shows nothing new.

All that an honest server says in a check follows from its shares, its secret of the batch, and what the other server
said before. The secret is noted when the first check begins. What the other server said is noted before anything
follows from it, and so is who is checked; another value is refused. So a check that is broken off and repeated, however
often, is one check of which a part is sent again.

Each beginning is counted before anything is sent, so that a server which is killed has counted it too. A check that
did not end is in the log, with who broke it off; so is every repetition, whatever ended the check before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from protocols.crypto.randomness import RandomSource
from protocols.errors import ChannelClosed, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.refusals.code import Code

# How often the check of one batch may begin without ending, and how often its labels may be evaluated. A repetition
# shows nothing new, so this bounds no leak: it ends the retries of a server that stalls, of which each costs the other
# some seconds of its processor. An honest pair needs one for each time that its line breaks.
MOST_ATTEMPTS = 64
SECRET_BYTES = 32

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
        return self._ledger.note(self._request, _SECRET, source(SECRET_BYTES))

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
