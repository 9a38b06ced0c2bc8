"""What a party seals to itself between steps, so that it keeps nothing of a batch but its secret and a few notes.

The coordinator brings both back: the keys that open neighbours' shares, with the neighbours' public keys that the party
verified then, and the shares that it opened.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int64, UInt8
from numpy import ndarray

from protocols.crypto.masks import KEY_BYTES
from protocols.errors import MalformedMessage
from protocols.levels.secure_sum.batch_secret import Secrets
from protocols.levels.secure_sum.context import Context
from protocols.levels.secure_sum.wire import SECRETS, flags, octets, rows_of

# What the two are called, in messages and in the derivation of their keys.
RECEIPT, KEPT_SHARES = b"receipt", b"kept shares"


@dataclass(frozen=True, eq=False)
class VerifiedKeys:
    """The keys of a party's neighbours, which it verified when it gave the receipt."""

    neighbours: Int64[ndarray, " neighbours"] = field(repr=False)
    present: Bool[ndarray, " neighbours"] = field(repr=False)
    table: UInt8[ndarray, "neighbours 3 32"] = field(repr=False)
    receipt: bytes = field(repr=False)

    @classmethod
    def read(cls, context: Context, index: int, present: ndarray, table: ndarray, receipt: ndarray) -> VerifiedKeys:
        """Of a request's arrays. Raises MalformedMessage."""
        return cls(context.graph.neighbours(index), flags(present, "present"), table, receipt.tobytes())

    def recall(self, secrets: Secrets) -> list[bytes]:
        """The keys that open the neighbours' shares, which only a receipt for verified keys gives."""
        return rows_of(
            octets(secrets.recall(RECEIPT, self.receipt, verified(self.present, self.table))).reshape(-1, 32)
        )

    def check_has(self, wanted: Bool[ndarray, " neighbours"], what: str, context: Context) -> None:
        """Raises MalformedMessage, naming the member, if the keys of a wanted neighbour are missing."""
        if (missing := np.flatnonzero(wanted & ~self.present)).size:
            name = context.members[self.neighbours[missing[0]]]
            raise MalformedMessage(f"keys: those of {name!r} are missing; allowed: those of all neighbours {what}")


def verified(present: Bool[ndarray, " neighbours"], keys: UInt8[ndarray, "neighbours 3 32"]) -> bytes:
    """Which neighbours have which keys."""
    return hashlib.sha256(present.tobytes() + keys.tobytes()).digest()


def kept_shares(secrets: Secrets, kept: bytes) -> UInt8[ndarray, "neighbours 2 32"]:
    """The shares that a party opened, zeros where it did not. Raises MalformedMessage for what it did not seal."""
    name, sealed = kept[:KEY_BYTES], kept[KEY_BYTES:]
    return octets(secrets.recall(KEPT_SHARES, sealed, name)).reshape(-1, SECRETS, KEY_BYTES)
