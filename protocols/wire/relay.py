"""How large a message may be, over any transport.

How a querying party reaches the seats of its study: an operator's hub relays requests and answers.

Hospitals only dial out. The querying party sends a signed Ask, from which the hub copies study, seat and envelope into
its own Ask; the reply is the seat's Answer as its party signed it, which the hub cannot forge, or a code.
"""

from __future__ import annotations

import re

from protocols.errors import MalformedMessage

REQUEST_BYTES = 32 * 2**20


RELAY_METHOD = "/conclave.v1.Relay/Pass"
# A frame is sent in pieces, so that a port for small messages stays one.
RELAY_PIECE_BYTES = 2**20
# The largest message of a computation, with its envelope.
RELAYED_BYTES = REQUEST_BYTES + 2**20
_CODE = re.compile("[a-z_]{0,40}")
_REASON_BYTES = 2000


def pieces(data: bytes) -> list[bytes]:
    """The pieces of a frame, at least one."""
    return [data[start : start + RELAY_PIECE_BYTES] for start in range(0, max(1, len(data)), RELAY_PIECE_BYTES)]


class Joined:
    """A frame out of its pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Raises MalformedMessage once there are more bytes than a frame and its code may have."""
        self._size += len(piece)
        if self._size > RELAYED_BYTES:
            raise MalformedMessage(f"a relayed frame has more than {RELAYED_BYTES} bytes; allowed: at most that")
        self._pieces.append(piece)

    @property
    def data(self) -> bytes:
        """The bytes received so far."""
        return b"".join(self._pieces)


def passed_back(answer: bytes, *, code: str = "", reason: str = "") -> bytes:
    """The hub's reply: a signed Answer, or a code with its reason."""
    return len(code).to_bytes(1, "big") + code.encode() + (reason.encode()[:_REASON_BYTES] if code else answer)


def read_passed_back(data: bytes) -> tuple[bytes, str, str]:
    """(signed answer, code, reason). Raises MalformedMessage."""
    code = data[1 : 1 + data[0]].decode("ascii", errors="replace") if data else "?"
    if not _CODE.fullmatch(code) or len(data) < 1 + data[0]:
        raise MalformedMessage(f"{len(data)} bytes are no relayed answer")
    rest = data[1 + data[0] :]
    if not code:
        return rest, "", ""
    text = rest[:_REASON_BYTES].decode(errors="replace")
    return b"", code, "".join(each if each.isprintable() else "?" for each in text)
