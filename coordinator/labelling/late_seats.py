"""Asking seats that are late, or away, again while patience lasts.

A late hospital's teachers continue (party/voting/teacher_process.py), so the same request is soon answered. Whether a
hospital is slow or only claims to be cannot be seen from here: a labelling waits at most its patience for each seat in
total. If the others are a quorum, a seat has extra time of a few deadlines for the whole labelling, of which each vote
in time gives a small part back; then it is left out of each batch for which it is late.
A study that is asked once waits for all that are away, too, unless its operator does without them (0071).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.wire.messages import Refusal, Reply, Request, Transport, VoteRequest
from runtime.logs import Event

# Codes of a seat that has the request and needs more time, as given by the hub and by the node itself.
LATE = frozenset({Code.LATE, Code.TEACHERS_LATE})
# Codes of a seat that is away, and of one that may still answer; every other refusal is for a person to fix.
AWAY = frozenset({Code.ABSENT, Code.UNKNOWN_STUDY})
NOT_HERE = AWAY | LATE
# A late seat is asked again after a tenth of the time that it has been late, within these bounds.
_FIRST_LATE_S, _LONGEST_LATE_S = 1.0, 60.0
# The extra time, in deadlines, of a seat that the quorum does not need; and how much a vote in time gives back of it.
_EXTRA, _EARNED = 5.0, 0.05


class LateSeats:
    """Asks late seats of one labelling again. patience_s: for each seat, over all batches; wait: waits that many
    seconds.

    clock: seconds. on_event: called for each seat that answered late, or is left out for that, with the time measured.
    done_without: of a study that is asked once, the seats that it does without; it waits for all others, also for those
    that are away.
    """

    def __init__(
        self,
        study: DeployedStudy,
        *,
        patience_s: float,
        wait: Callable[[float], None],
        on_event: Event,
        clock: Callable[[], float] = time.monotonic,
        done_without: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._once = study.votes.once
        self._done_without = done_without
        self._study = study.name
        self._deadline_s = study.terms.deadline_s
        self._patience_s = patience_s
        self._wait = wait
        self._on_event = on_event
        self._clock = clock
        self._quorum = study.quorum
        self._waited_s: dict[str, float] = {}
        # How much of its extra time each seat has used.
        self._extra_s: dict[str, float] = {}
        # How often each seat answered late, or was left out for that, and the longest time it took.
        self._answered: dict[str, tuple[int, float]] = {}
        self._left_out: dict[str, tuple[int, float]] = {}
        # The seats that were left out of the last batch, with the time after which they had no votes.
        self._out_s: dict[str, float] = {}
        # In words: for whom a repeated round waits, "" in a first round.
        self.waiting = ""

    def ask(self, send: Transport, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        """One exchange, in which seats that are late with votes are sent the same request again while patience lasts.

        A seat that is still late at the end remains a Refusal that says so. Raises StillAway in a study that is asked
        once.
        """
        began = self._clock()
        due = began + self._deadline_s
        replies = send(requests)
        votes = {seat for seat, request in requests.items() if isinstance(request, VoteRequest)}
        for seat in self._voted(votes, replies):
            self._extra_s[seat] = max(0.0, self._extra_s.get(seat, 0.0) - _EARNED * self._deadline_s)
        try:
            while late := self._late(votes, replies):
                said = "; ".join(f"{seat} ({reason})" for seat, reason in late.items())
                self.waiting = f"waiting for late seats: {said}"[:1000]
                mark, spared = self._clock(), self._spared(votes, replies)
                wait_s = min(max((mark - began) / 10, _FIRST_LATE_S), _LONGEST_LATE_S)
                self._wait(min(wait_s, *(self._left_s(seat) - self._deadline_s for seat in late)) if spared else wait_s)
                again = send({seat: requests[seat] for seat in late})
                now = self._clock()
                for seat, reply in again.items():
                    replies[seat] = reply
                    self._waited_s[seat] = self._waited_s.get(seat, 0.0) + now - mark
                    voted = not isinstance(reply, Refusal | None)
                    if spared:
                        # A round that did not wait for a seat may end long before the deadline.
                        used_s = max(0.0, now - (max(mark, due) if voted else mark))
                        self._extra_s[seat] = self._extra_s.get(seat, 0.0) + used_s
                    if voted and now > due:
                        self._answered_late(seat, now - began)
        finally:
            self.waiting = ""
        if self._once and (away := self._away(votes, replies)):
            raise StillAway(away)
        self._note_left_out(votes, replies, self._clock() - began)
        return replies

    def left_out(self) -> str:
        """In words: the seats that the last batch did without, as they were late; "" if there is none."""
        seats = ", ".join(f"{seat} (no votes after {out_s:.3g} s)" for seat, out_s in sorted(self._out_s.items()))
        return f"left out as late: {seats}" if seats else ""

    def summary(self) -> str:
        """In words for the operator: which seats answered late, or were left out for that; "" if none."""
        found = [
            f"{what}: {_in_words(seats)}"
            for what, seats in (
                (f"answered after the deadline of {self._deadline_s:g} s", self._answered),
                ("left out as late", self._left_out),
            )
            if seats
        ]
        if not found:
            return ""
        return f"{'; '.join(found)}; a longer deadline_s or a smaller batch_limit avoids that in the next study"

    def _late(self, votes: set[str], replies: Mapping[str, Reply | None]) -> dict[str, str]:
        """The seats that are asked again, each with its reason."""
        spared = self._spared(votes, replies)
        late = dict.fromkeys(self._away(votes, replies), "away; see label --without") if self._once else {}
        late = {seat: why for seat, why in late.items() if self._waits_for(seat, spared=False)}
        for seat in sorted(votes):
            reply = replies[seat]
            if isinstance(reply, Refusal) and is_late(reply) and self._waits_for(seat, spared=spared):
                late[seat] = reply.reason.removeprefix(f"{reply.code}: ")[:300] or reply.code
        return late

    def _away(self, votes: set[str], replies: Mapping[str, Reply | None]) -> list[str]:
        """The seats that may still answer, and that nobody decided to do without."""
        missing = sorted(seat for seat in votes if _code(replies[seat]) in NOT_HERE)
        done_without = self._done_without() if missing else ()
        return [seat for seat in missing if seat not in done_without]

    def _voted(self, votes: set[str], replies: Mapping[str, Reply | None]) -> set[str]:
        return {seat for seat in votes if not isinstance(replies[seat], Refusal | None)}

    def _spared(self, votes: set[str], replies: Mapping[str, Reply | None]) -> bool:
        """Whether the batch has its quorum without those that are late, and comes again."""
        return not self._once and len(self._voted(votes, replies)) >= self._quorum

    def _left_s(self, seat: str) -> float:
        return _EXTRA * self._deadline_s - self._extra_s.get(seat, 0.0)

    def _waits_for(self, seat: str, *, spared: bool) -> bool:
        """Whether to keep waiting for a late seat, which may take a whole deadline. spared: see _spared."""
        if spared and self._left_s(seat) < self._deadline_s:
            return False
        return self._waited_s.get(seat, 0.0) < self._patience_s

    def _answered_late(self, seat: str, after_s: float) -> None:
        _count(self._answered, seat, after_s)
        self._say("answered_late", seat, f"answered after {after_s:.3g} s")

    def _note_left_out(self, votes: set[str], replies: Mapping[str, Reply | None], after_s: float) -> None:
        """Which late seats the batch does without. Where there is no quorum, the job says for whom it waits."""
        if not self._spared(votes, replies):
            return
        self._out_s = {seat: after_s for seat in votes if is_late(replies[seat])}
        for seat in sorted(self._out_s):
            _count(self._left_out, seat, after_s)
            left_s = max(self._left_s(seat), 0.0)
            self._say("left_out_late", seat, f"no votes after {after_s:.3g} s, and {left_s:.3g} s of extra time left")

    def _say(self, event: str, seat: str, what: str) -> None:
        reason = f"{what}; the study's deadline is {self._deadline_s:g} s"
        self._on_event(event, {"study": self._study, "seat": seat, "reason": reason})


def _count(seats: dict[str, tuple[int, float]], seat: str, after_s: float) -> None:
    times, longest_s = seats.get(seat, (0, 0.0))
    seats[seat] = (times + 1, max(longest_s, after_s))


def _in_words(seats: Mapping[str, tuple[int, float]]) -> str:
    return ", ".join(
        f"{seat} ({times} {'batch' if times == 1 else 'batches'}, up to {longest_s:.3g} s)"
        for seat, (times, longest_s) in sorted(seats.items())
    )


def is_late(reply: Reply | None) -> bool:
    """Whether a reply says that a seat has the request and needs more time."""
    return isinstance(reply, Refusal) and reply.code in LATE


def _code(reply: Reply | None) -> str | None:
    """The code of a refusal or of no answer, None of an answer."""
    return Code.ABSENT if reply is None else reply.code if isinstance(reply, Refusal) else None


class StillAway(Exception):
    """Seats of a study that is asked once did not answer in time, and nobody decided to do without them."""

    def __init__(self, seats: Sequence[str]) -> None:
        super().__init__(", ".join(seats))
        self.seats = list(seats)
