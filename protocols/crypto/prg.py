"""A deterministic stream of random bytes from a 32-byte seed: ChaCha20 (RFC 8439) under a key that HKDF derives.

A server stores the seed of its noise and can draw the identical noise again; to anyone without the seed the bytes look
uniform.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from protocols.crypto.prg_chacha import keystream
from protocols.crypto.randomness import RandomSource
from protocols.errors import InvalidInput

SEED_BYTES = 32


def expanded_source(seed: bytes, *, label: str) -> RandomSource:
    """The keystream of (seed, label) from its start; each call to the source continues where the last one ended.

    Streams of different labels are independent: the label is the HKDF info (RFC 5869), so one seed may serve several
    purposes. Drawing twice from the same (seed, label) gives the same bytes: that is its purpose, and why a seed must
    belong to one query batch. Raises InvalidInput unless seed has 32 bytes and label is not empty.
    """
    if len(seed) != SEED_BYTES:
        raise InvalidInput(f"a seed of {len(seed)} bytes; allowed: {SEED_BYTES}")
    if not label:
        raise InvalidInput("the stream's label is empty; allowed: one that says what the stream is for")
    key = HKDF(algorithm=SHA256(), length=32, salt=b"conclave stream", info=label.encode()).derive(seed)
    stream = keystream(key)
    return lambda count: stream.update(bytes(count))
