"""The expanded stream: deterministic, in one piece however it is read, and its own for each seed and label."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from protocols.crypto.prg import expanded_source
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses

SEED = bytes(range(32))


@given(pieces=st.lists(st.integers(0, 300), max_size=12))
def test_a_stream_read_in_pieces_is_the_stream_read_at_once(pieces) -> None:
    source = expanded_source(SEED, label="noise")
    assert b"".join(map(source, pieces)) == expanded_source(SEED, label="noise")(sum(pieces))


def test_the_stream_is_the_chacha20_keystream_under_the_derived_key() -> None:
    key = HKDF(algorithm=SHA256(), length=32, salt=b"conclave stream", info=b"noise").derive(SEED)
    keystream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(100))
    assert expanded_source(SEED, label="noise")(100) == keystream


def test_another_seed_bit_or_another_label_gives_an_unrelated_stream() -> None:
    """Each pair of streams agrees in half of its bits: within six standard deviations, false alarm 1e-8 a pair."""
    flipped = [
        bytes([byte ^ (1 << bit) if place == 7 else byte for place, byte in enumerate(SEED)]) for bit in range(8)
    ]
    streams = [expanded_source(seed, label="a")(4096) for seed in [SEED, *flipped]] + [
        expanded_source(SEED, label="b")(4096),
        expanded_source(SEED, label="aa")(4096),
    ]
    bits = np.unpackbits(np.frombuffer(b"".join(streams), dtype=np.uint8).reshape(len(streams), -1), axis=1)
    agreeing = (bits[:, None, :] == bits[None, :, :]).mean(axis=2)[np.triu_indices(len(streams), 1)]
    assert (np.abs(agreeing - 0.5) < 6 * 0.5 / np.sqrt(8 * 4096)).all()


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33)])
def test_a_seed_of_another_length_is_refused_and_not_shown(seed: bytes) -> None:
    with refuses(InvalidInput, len(seed), 32):
        expanded_source(seed, label="noise")


def test_an_empty_label_is_refused() -> None:
    with refuses(InvalidInput, "label"):
        expanded_source(SEED, label="")
