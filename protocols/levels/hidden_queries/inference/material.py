"""Dealt randomness as arrays: how each kind is shared, drawn from a seed, and corrected.

`free` arrays are the sum of what both parties' seeds give. `derived` arrays are functions of free ones: the querying
party's share comes from its seed, and the dealer sends the answering party the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy import ndarray

from protocols.crypto.field import minus, plus
from protocols.crypto.prg_aes import Stream
from protocols.errors import MalformedMessage
from protocols.ranges import in_range

Arrays = tuple[ndarray, ...]
Group = Literal["xor", "ring", "field"]


@dataclass(frozen=True)
class Piece:
    """One array: "xor" of bits, "ring" of integers modulo the dtype's size, or "field" F_p."""

    group: Group
    dtype: Literal["<u1", "<u4", "<u8"]
    shape: tuple[int, ...]


def drawn(stream: Stream, pieces: tuple[Piece, ...]) -> Arrays:
    """The next arrays of a seed."""
    return tuple(
        stream.field(piece.shape) if piece.group == "field" else stream.words(piece.shape, piece.dtype)
        for piece in pieces
    )


def joined(pieces: tuple[Piece, ...], left: Arrays, right: Arrays) -> Arrays:
    """The secrets that two shares add up to."""
    return tuple(_sum(piece, a, b) for piece, a, b in zip(pieces, left, right, strict=True))


def corrections(pieces: tuple[Piece, ...], secrets: Arrays, drawn_share: Arrays) -> Arrays:
    """The other share of each secret."""
    return tuple(_difference(piece, a, b) for piece, a, b in zip(pieces, secrets, drawn_share, strict=True))


def received(step: str, arrays: Arrays, pieces: tuple[Piece, ...]) -> Arrays:
    """Returns `arrays` if they are what `step` must bring. Raises MalformedMessage naming the fault."""
    if not isinstance(arrays, tuple) or len(arrays) != len(pieces):
        count = len(arrays) if isinstance(arrays, tuple) else type(arrays).__name__
        raise MalformedMessage(f"{step} has {count} arrays; expected {len(pieces)}")
    for number, (array, piece) in enumerate(zip(arrays, pieces, strict=True), 1):
        if not isinstance(array, ndarray) or array.dtype.str.replace("|", "<") != piece.dtype:
            found = array.dtype.str if isinstance(array, ndarray) else type(array).__name__
            raise MalformedMessage(f"{step}: array {number} is {found}; expected {piece.dtype}")
        if array.shape != piece.shape:
            raise MalformedMessage(f"{step}: array {number} has shape {array.shape}; expected {piece.shape}")
        if piece.group == "field":
            in_range("inference", "field element", array)
    return tuple(np.ascontiguousarray(array) for array in arrays)


def _sum(piece: Piece, left: ndarray, right: ndarray) -> ndarray:
    if piece.group == "xor":
        return left ^ right
    if piece.group == "ring":
        return left + right
    return plus(left, right)


def _difference(piece: Piece, left: ndarray, right: ndarray) -> ndarray:
    if piece.group == "xor":
        return left ^ right
    if piece.group == "ring":
        return left - right
    return minus(left, right)
