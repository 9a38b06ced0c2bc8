"""The messages: the arrays of each step, and checks of those that arrive."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, UInt8
from numpy import ndarray

from protocols.crypto.edwards import SCALAR_BYTES
from protocols.crypto.masks import KEY_BYTES
from protocols.errors import InvalidInput, MalformedMessage

# A length and a signature: ECDSA over P-256 in DER has at most 72 bytes, Ed25519 has 64.
SIGNATURE_BYTES = 73
# The public key that shares are sealed to, the public key of masks, a commitment to the self-mask seed.
KEYS = (3, KEY_BYTES)
SEALING_ROW, MASK_ROW, COMMITMENT_ROW = range(3)
# The kinds of secrets, in the order in which their shares stand everywhere.
SEED, MASK_KEY = range(2)
SECRETS = 2
# The receiver's key; a share of each secret and of what blinds the key of masks, and a Poly1305 tag.
SEALED_BYTES = KEY_BYTES + (SECRETS + 1) * SCALAR_BYTES + 16
# What a party found of a neighbour's dealing.
NOTHING, VALID, NOT_VALID = range(3)

Arrays = tuple[ndarray, ...]
Expected = tuple[str, str, tuple[int, ...]]


def checked(arrays: Arrays, *expected: Expected) -> Arrays:
    """The arrays, if they are as expected: (name, dtype, shape) each. Raises MalformedMessage."""
    if not isinstance(arrays, tuple) or len(arrays) != len(expected):
        raise MalformedMessage(
            f"{len(arrays)} arrays; allowed: {len(expected)} ({', '.join(name for name, _, _ in expected)})"
        )
    for array, (name, dtype, shape) in zip(arrays, expected, strict=True):
        if array.dtype != dtype or array.shape != shape:
            raise MalformedMessage(
                f"{name}: {array.dtype} of shape {array.shape}; allowed: {np.dtype(dtype)} of shape {shape}"
            )
    return tuple(np.ascontiguousarray(array) for array in arrays)


def receipt_bytes(neighbours: int) -> int:
    """The size of what a party seals to itself: a key for each neighbour, and a Poly1305 tag."""
    return KEY_BYTES * neighbours + 16


def kept_bytes(neighbours: int) -> int:
    """The size of what a party keeps of its neighbours' shares: a name, the shares, and a Poly1305 tag."""
    return KEY_BYTES + SECRETS * SCALAR_BYTES * neighbours + 16


def flags(array: ndarray, name: str) -> Bool[ndarray, " flags"]:
    """Bytes 0 and 1 as booleans. Raises MalformedMessage for others."""
    if array.max(initial=0) > 1:
        raise MalformedMessage(f"{name}: a byte is {int(array.max())}; allowed: 0 and 1")
    return array.astype(bool)


def padded(signature: bytes) -> UInt8[ndarray, " bytes"]:
    """A signature in constant size. Raises InvalidInput for an empty or long one."""
    if not 1 <= len(signature) < SIGNATURE_BYTES:
        raise InvalidInput(f"a signature has {len(signature)} bytes; allowed: 1 to {SIGNATURE_BYTES - 1}")
    row = np.zeros(SIGNATURE_BYTES, dtype=np.uint8)
    row[0] = len(signature)
    row[1 : 1 + len(signature)] = np.frombuffer(signature, dtype=np.uint8)
    return row


def unpadded(row: UInt8[ndarray, " bytes"]) -> bytes:
    """The signature in a row; b"", which nobody's signature is, for a row that holds none."""
    content = row.tobytes()
    length = content[0]
    if not 1 <= length < SIGNATURE_BYTES or content[1 + length :].strip(b"\0"):
        return b""
    return content[1 : 1 + length]


def octets(value: bytes) -> UInt8[ndarray, " bytes"]:
    """Bytes as an array."""
    return np.frombuffer(value, dtype=np.uint8)


def rows_of(table: UInt8[ndarray, "rows width"]) -> list[bytes]:
    """Each row of a table as bytes: far cheaper than asking NumPy row by row."""
    content, width = table.tobytes(), table.shape[1]
    return [content[start : start + width] for start in range(0, len(content), width)]


def table_of(rows: Sequence[bytes]) -> UInt8[ndarray, "rows width"]:
    """Rows of equal length, at least one, as a table."""
    return octets(b"".join(rows)).reshape(len(rows), -1)


def keys_statement(digest: bytes, index: int, keys: UInt8[ndarray, "3 32"]) -> bytes:
    """What a party signs about its keys."""
    return b"conclave secure sum keys 1\n" + digest + index.to_bytes(4, "big") + keys.tobytes()


def masked_statement(digest: bytes, index: int, masked_for: bytes) -> bytes:
    """What a party signs with its masked values: with whom it masked them (`Context.mask_context`)."""
    return b"conclave secure sum masked 1\n" + digest + index.to_bytes(4, "big") + masked_for


def survivors_statement(
    digest: bytes, sharers: Bool[ndarray, " parties"], survivors: Bool[ndarray, " parties"]
) -> bytes:
    """What a party tags about who is left."""
    sets = np.packbits(sharers).tobytes() + np.packbits(survivors).tobytes()
    return b"conclave secure sum survivors 1\n" + digest + sets


def commitment(digest: bytes, index: int, seed: bytes) -> bytes:
    """Commits a party to its self-mask seed; the seed is uniform, so its hash hides it."""
    return hashlib.sha256(b"conclave secure sum seed 2\n" + digest + index.to_bytes(4, "big") + seed).digest()
