"""The notes of one batch in a server's ledger: what must be found again after a stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from protocols.errors import ChannelClosed, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.opened_batches import OpenedBatches
from protocols.refusals.code import Code


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
