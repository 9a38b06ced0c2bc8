"""What comes back from the hosts of an exchange: replies, checked and counted, and errors, rebuilt.

An error crosses the process border as its type's name and its message, never as a pickled object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from protocols import errors
from protocols.errors import CannotVote, ConclaveError, EngineFailed, InvalidInput, Refused
from simulations.engines.engine import OnReply


class Replies:
    """The replies to one exchange, in the order of its requests whatever the order of arrival."""

    def __init__(self, asked: Iterable[str], on_reply: OnReply | None) -> None:
        self._replies: dict[str, bytes | None] = dict.fromkeys(asked)
        self._on_reply = on_reply
        self._done = 0

    def add(self, party: str, reply: bytes) -> None:
        """Takes one party's reply. Raises EngineFailed if the party was not asked or has answered already."""
        if party not in self._replies:
            raise EngineFailed(f"a host replied for party {party!r}, which was not asked")
        if self._replies[party] is not None:
            raise EngineFailed(f"a host replied twice for party {party!r}")
        self._replies[party] = reply
        self._done += 1
        if self._on_reply is not None:
            self._on_reply(self._done, len(self._replies))

    def missing(self) -> list[str]:
        """The parties that have not answered."""
        return [party for party, reply in self._replies.items() if reply is None]

    def complete(self) -> dict[str, bytes | None]:
        """Every party asked with its reply, or None where the host gave none."""
        return dict(self._replies)


def check_asked(requests: Mapping[str, bytes], parties: Collection[str]) -> None:
    """Raises InvalidInput if a request is for a party that the engine does not host."""
    strangers = [party for party in requests if party not in parties]
    if strangers:
        raise InvalidInput(f"requests names party {strangers[0]!r}; allowed: the {len(parties)} parties of this run")


def describe_error(error: ConclaveError) -> dict[str, str]:
    """The type's name (the nearest one of protocols.errors), the message, and for a refusal its code."""
    name = next(cls.__name__ for cls in type(error).__mro__ if vars(errors).get(cls.__name__) is cls)
    if isinstance(error, CannotVote):  # in a simulation, everybody may see the whole message
        return {"type": name, "message": error.why}
    if isinstance(error, Refused):
        return {"type": name, "message": str(error).removeprefix(f"{error.code}: "), "code": error.code}
    return {"type": name, "message": str(error)}


def rebuild_error(description: Mapping[str, str]) -> ConclaveError:
    """The error that describe_error described, as an exception of protocols.errors."""
    if description["type"] == Refused.__name__:
        return Refused(description["code"], description["message"])
    error_class = vars(errors)[description["type"]]
    error: ConclaveError = error_class(description["message"])
    return error
