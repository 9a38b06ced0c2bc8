"""Late seats: connected and asked, but without an answer at the deadline. They are asked again, not left out.

A late hospital's teachers continue (party/voting/teacher_process.py), so the same request is soon answered. Whether a
hospital is slow or only claims to be cannot be seen from here: a labelling waits at most its patience for each seat in
total and, if the others are a quorum, only a few deadlines for one that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.wire.messages import Refusal, Reply, Request, VoteRequest
from protocols.wire.transport import Transport
from runtime.logs import Event

# Codes of a seat that has the request and needs more time, as given by the hub and by the node itself.
LATE = frozenset({Code.LATE, Code.TEACHERS_LATE})
# A late seat is asked again after a tenth of the time that it has been late, within these bounds.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0
# For how many deadlines since its last vote to wait for a seat that the quorum does not need.
_SPARED_DEADLINES = 5


class LateSeats:
    """Asks late seats of one labelling again. patience_s: for each seat, over all batches; wait: waits that many
    seconds.

    clock: seconds. on_event: called for each seat that answered late, with the time it took.
    """

    def __init__(
        self,
        study: DeployedStudy,
        *,
        patience_s: float,
        wait: Callable[[float], None],
        on_event: Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._study = study.name
        self._deadline_s = study.terms.deadline_s
        self._patience_s = patience_s
        self._wait = wait
        self._on_event = on_event
        self._clock = clock
        self._quorum = study.quorum
        self._waited_s: dict[str, float] = {}
        # The same, since the seat's last vote.
        self._in_vain_s: dict[str, float] = {}
        # How often each seat answered late, and the longest time it took.
        self._answered: dict[str, tuple[int, float]] = {}
        # In words: for whom a repeated round waits, "" in a first round.
        self.waiting = ""

    def ask(self, send: Transport, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        """One exchange, in which seats that are late with votes are sent the same request again while patience lasts.

        A seat that is still late at the end remains a Refusal that says so.
        """
        began = self._clock()
        replies = send(requests)
        votes = {seat for seat, request in requests.items() if isinstance(request, VoteRequest)}
        try:
            while late := self._late(votes, replies):
                said = "; ".join(f"{seat} ({reason})" for seat, reason in late.items())
                self.waiting = f"waiting for late seats: {said}"[:1000]
                mark = self._clock()
                self._wait(min(max((mark - began) / 10, _FIRST_WAIT_S), _LONGEST_WAIT_S))
                again = send({seat: requests[seat] for seat in late})
                now = self._clock()
                for seat, reply in again.items():
                    replies[seat] = reply
                    self._waited_s[seat] = self._waited_s.get(seat, 0.0) + now - mark
                    self._in_vain_s[seat] = self._in_vain_s.get(seat, 0.0) + now - mark
                    if not is_late(reply):
                        self._answered_late(seat, now - began)
                    if not isinstance(reply, Refusal | None):
                        self._in_vain_s[seat] = 0.0
        finally:
            self.waiting = ""
        return replies

    def summary(self) -> str:
        """In words for the operator: which seats answered late; "" if none did."""
        if not self._answered:
            return ""
        seats = ", ".join(
            f"{seat} ({times} {'batch' if times == 1 else 'batches'}, up to {longest_s:.3g} s)"
            for seat, (times, longest_s) in sorted(self._answered.items())
        )
        return (
            f"answered after the deadline of {self._deadline_s:g} s: {seats}; a longer deadline_s or a smaller "
            "batch_limit avoids that in the next study"
        )

    def _late(self, votes: set[str], replies: Mapping[str, Reply | None]) -> dict[str, str]:
        """The seats that are asked again, each with its reason."""
        voted = sum(1 for seat in votes if not isinstance(replies[seat], Refusal | None))
        late = {}
        for seat in sorted(votes):
            reply = replies[seat]
            if isinstance(reply, Refusal) and is_late(reply) and self._waits_for(seat, spared=voted >= self._quorum):
                late[seat] = reply.reason.removeprefix(f"{reply.code}: ")[:300] or reply.code
        return late

    def _waits_for(self, seat: str, *, spared: bool) -> bool:
        """Whether to keep waiting for a late seat. spared: whether the others are a quorum."""
        if spared and self._in_vain_s.get(seat, 0.0) >= _SPARED_DEADLINES * self._deadline_s:
            return False
        return self._waited_s.get(seat, 0.0) < self._patience_s

    def _answered_late(self, seat: str, after_s: float) -> None:
        times, longest_s = self._answered.get(seat, (0, 0.0))
        self._answered[seat] = (times + 1, max(longest_s, after_s))
        reason = f"answered after {after_s:.3g} s; the study's deadline is {self._deadline_s:g} s"
        self._on_event("answered_late", {"study": self._study, "seat": seat, "reason": reason})


def is_late(reply: Reply | None) -> bool:
    """Whether a reply says that a seat has the request and needs more time."""
    return isinstance(reply, Refusal) and reply.code in LATE
