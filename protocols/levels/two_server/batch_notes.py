"""The notes of one batch in a server's ledger: what must be found again after a stop."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.ledger.ledger import Ledger


@dataclass(frozen=True)
class BatchNotes:
    """Notes under the digest of a batch's request."""

    ledger: Ledger
    request: bytes

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
