"""What a server holds between the evaluation of the circuits and the opening of their outputs; it is noted before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, UInt64
from numpy import ndarray

from protocols.crypto.garbling import chosen, colours
from protocols.crypto.prg_chacha import derived_key
from protocols.wire.messages import decode_arrays, encode_arrays


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The labels of the outputs of two circuits: one that this server evaluated, and one that it garbled.

    Outputs are the bits of the label, lowest first, and after them the pass bit, if there is a threshold. context: a
    hash of the messages with which the evaluation began; active: labels of the circuit that the other garbled; zeros:
    labels of zero of the own circuit, whose labels of one are zeros ^ offset; mask: what the coordinator added to the
    label's bits, if it hid them; seed: 32 secret bytes for the test of equality; bound: what is left of the macs of the
    coordinator's inputs and of the guardian's, the same on both servers if what entered is what was bound.
    """

    context: bytes
    active: UInt64[ndarray, "outputs queries 2"] = field(repr=False)
    zeros: UInt64[ndarray, "outputs queries 2"] = field(repr=False)
    offset: UInt64[ndarray, "2"] = field(repr=False)
    mask: Bool[ndarray, "label_bits queries"] | None = field(repr=False)
    seed: bytes = field(repr=False)
    bound: tuple[bytes, bytes] = field(repr=False)

    @property
    def masks(self) -> bytes:
        """What tells the other server the values of the outputs of the circuit that this one garbled."""
        return np.packbits(colours(self.zeros).reshape(-1)).tobytes()

    def decoded(self, masks: bytes) -> Bool[ndarray, "outputs queries"]:
        """The outputs of the circuit that this server evaluated; masks: the other server's."""
        seen = colours(self.active)
        return seen ^ np.unpackbits(np.frombuffer(masks, np.uint8), count=seen.size).astype(np.bool_).reshape(
            seen.shape
        )

    def secret(self, outputs: Bool[ndarray, "outputs queries"], *, garbled: Literal["first", "second"]) -> bytes:
        """The same on both servers only if both hold labels of these outputs in both circuits, of the bound inputs.

        garbled: which circuit this server garbled: the guardian's is the first.
        """
        own = self.zeros ^ chosen(outputs, self.offset)
        both = (own, self.active) if garbled == "first" else (self.active, own)
        labels = (each.astype("<u8").tobytes() for each in both)
        return derived_key("agreement", *labels, outputs.tobytes(), *self.bound)

    def encoded(self) -> bytes:
        """For a note."""
        mask = np.zeros((0, 0), np.bool_) if self.mask is None else self.mask
        labels = (each.astype("<u8").view(np.uint8) for each in (self.active, self.zeros, self.offset))
        ends = (np.frombuffer(each, np.uint8) for each in (self.context, self.seed, *self.bound))
        return encode_arrays((*labels, mask, *ends))

    @classmethod
    def read(cls, note: bytes) -> Evaluated:
        """What `encoded` wrote."""
        active, zeros, offset, mask, *ends = decode_arrays(note)
        context, seed, one, other = (each.tobytes() for each in ends)
        active, zeros, offset = (
            np.ascontiguousarray(each).view("<u8").astype(np.uint64) for each in (active, zeros, offset)
        )
        return cls(context, active, zeros, offset, mask if mask.size else None, seed, (one, other))
