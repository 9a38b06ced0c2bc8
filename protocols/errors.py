"""The exceptions of Conclave, one small tree.

    ConclaveError
    ├── InvalidInput        a value outside its allowed range (also a ValueError); nothing was spent or sent
    ├── DataUnavailable     a data set that is absent; the message says how to get it
    ├── DataCorrupt         a file whose content is not what it should be (checksum, format)
    ├── BudgetExceeded      a charge that would pass a cap; nothing was charged and nothing was released
    ├── Refused             a party will not answer a request; nothing was charged
    │   └── CannotVote      its own teachers or votes failed; the reason stays in its own log
    ├── MalformedMessage    bytes that do not decode to a message; nothing was charged
    ├── ChannelClosed       the other server is gone; what was reserved stands, and nothing was released
    ├── Unreachable         the other side does not answer; nothing was sent that matters
    ├── StorageFailed       the disk is full or the database cannot be written; nothing half-written remains
    ├── EngineFailed        the engine that runs the parties stopped working
    └── VerificationFailed  signed content was changed, or is not signed

Every message gives the value and the allowed range, and never a vote, a share or a seed.
"""

from __future__ import annotations

from protocols.refusals.code import Code


class ConclaveError(Exception):
    """Base of all errors that a user of Conclave may want to catch."""


class InvalidInput(ConclaveError, ValueError):
    """A value is outside its allowed range; nothing was spent or sent."""


class DataUnavailable(ConclaveError):
    """A data set is absent; the message says how to get it."""


class DataCorrupt(ConclaveError):
    """A file does not hold what it should: wrong checksum, format, shape or values."""


class BudgetExceeded(ConclaveError):
    """A charge would pass a cap; nothing was charged and nothing was released."""


class Refused(ConclaveError):
    """A request or a command is refused. `code` is stable: one of `Code`, or what other software sent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class CannotVote(Refused):
    """A party's own teachers or votes failed. The reason may reveal something about its records, so nobody else gets
    it.

    The coordinator gets one code and one text, whatever failed; `why` is for the party's own log.
    """

    def __init__(self, why: str) -> None:
        super().__init__(Code.COULD_NOT_VOTE, "the node could not vote; its administrator's log says why")
        self.why = why


class MalformedMessage(ConclaveError):
    """Bytes do not decode to a message; nothing was charged."""


class ChannelClosed(ConclaveError):
    """The other server is gone; what was reserved stands, and nothing more was released."""


class Unreachable(ConclaveError):
    """The other side does not answer; nothing was sent that matters."""


class StorageFailed(ConclaveError):
    """The disk is full or a file cannot be written; nothing half-written remains."""


class EngineFailed(ConclaveError):
    """The engine that runs the parties stopped working; what was finished is cached."""


class VerificationFailed(ConclaveError):
    """Something that should be signed is not, or is not as it was signed."""
