"""A Merkle tree over a list of rows: one hash for all of them, and for each a short proof that it is in its place.

Hashes as RFC 6962, section 2.1 (leaves and nodes have different prefixes); the rows are padded with empty leaves to a
power of two, so that the position alone says on which side each hash of a proof stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

HASH_BYTES = 32
_LEAF, _NODE = b"\0", b"\1"


def root_of(rows: Sequence[bytes]) -> bytes:
    """The root, 32 bytes, of one row or more."""
    return _levels(rows)[-1][0]


def inclusion_proofs(rows: Sequence[bytes]) -> list[bytes]:
    """For each row the hashes beside the way from it to the root, from below: depth(len(rows)) times 32 bytes."""
    levels = _levels(rows)[:-1]
    return [b"".join(level[(at >> up) ^ 1] for up, level in enumerate(levels)) for at in range(len(rows))]


def depth(rows: int) -> int:
    """How many hashes a proof in a tree of so many rows has."""
    return (rows - 1).bit_length()


def root_from(row: bytes, position: int, proof: bytes) -> bytes:
    """The root of the tree in which a proof shows that this row is at this position."""
    node = _hash(_LEAF, row)
    for at in range(0, len(proof), HASH_BYTES):
        beside = proof[at : at + HASH_BYTES]
        node = _hash(_NODE, beside + node if position & 1 else node + beside)
        position //= 2
    return node


def _levels(rows: Sequence[bytes]) -> list[list[bytes]]:
    padding = 2 ** depth(len(rows)) - len(rows)
    levels = [[_hash(_LEAF, row) for row in rows] + [_hash(_LEAF, b"")] * padding]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([_hash(_NODE, below[at] + below[at + 1]) for at in range(0, len(below), 2)])
    return levels


def _hash(prefix: bytes, content: bytes) -> bytes:
    return hashlib.sha256(prefix + content).digest()
