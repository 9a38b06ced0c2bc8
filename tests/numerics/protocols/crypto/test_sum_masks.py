"""Masks: they cancel in pairs, and every bit of every key matters."""

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from hypothesis import given
from hypothesis import strategies as st

from protocols.crypto.masks import MaskSum, agreed, key_stream, pairwise
from protocols.errors import InvalidInput, MalformedMessage
from protocols.levels.secure_sum.dealing import SECRET_BYTES, Secrets, pair_mask_key, self_mask_key
from tests.harness.refusals import refuses
from tests.harness.sum_parties import Member, Sum, make_context

CONTEXT = make_context(6, 1, 1, cells=64)


def flips(value):
    """The value with each of its bits flipped, one at a time."""
    for bit in range(8 * len(value)):
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << (bit % 8)
        yield bytes(flipped)


def far_apart(left, right):
    """Differing in a quarter to three quarters of their 2,048 bits: false alarm < 1e-100 for independent streams."""
    differing = np.unpackbits((left ^ right).view(np.uint8)).mean()
    return 0.25 < differing < 0.75


@given(key=st.binary(min_size=32, max_size=32), bits=st.sampled_from([32, 64]))
def test_a_mask_added_by_one_party_and_subtracted_by_another_is_gone(key, bits) -> None:
    masks = MaskSum(10, bits=bits)
    masks.add(key, sign=1)
    np.testing.assert_array_equal(masks.total, key_stream(key, 10, bits=bits))
    masks.add(key, sign=-1)
    assert not masks.total.any()


def test_of_an_added_mask_nothing_is_left_but_the_sum():
    masks = MaskSum(10, bits=32)
    masks.add(bytes(range(32)), sign=1)
    assert masks.total.any()
    assert not masks._mask.any()


def test_flipping_any_bit_of_a_key_changes_its_mask() -> None:
    key = hashlib.sha256(b"key").digest()
    mask = key_stream(key, 64, bits=32)
    for other in flips(key):
        assert far_apart(mask, key_stream(other, 64, bits=32))


def test_flipping_any_bit_of_the_batch_secret_changes_every_key_and_the_masked_votes() -> None:
    secret = hashlib.sha256(b"secret").digest()
    own = Secrets(secret, CONTEXT, 2)
    everything = {
        own.seed(), own.mask_key().private_bytes_raw(), own.sealing_key().private_bytes_raw(),
        str(own.coefficients(b"about")),
    }  # fmt: skip
    seen = set(everything)
    for other in flips(secret):
        theirs = Secrets(other, CONTEXT, 2)
        seen |= {theirs.seed(), theirs.mask_key().private_bytes_raw(), theirs.sealing_key().private_bytes_raw()}
        masks = [key_stream(self_mask_key(each.seed(), CONTEXT, 2), 64, bits=32) for each in (own, theirs)]
        assert far_apart(*masks)
    assert len(seen) == 4 + 3 * 256


def test_flipping_any_bit_of_a_pairs_secret_keys_or_context_changes_their_mask() -> None:
    """Of the bits that X25519 itself ignores, the public key's top one counts all the same."""
    key, their = X25519PrivateKey.from_private_bytes(bytes(range(32))), bytes(range(100, 132))
    secret, publics = agreed(key, their), (key.public_key().public_bytes_raw(), their)
    about = hashlib.sha256(b"about").digest()
    mask = key_stream(pair_mask_key(secret, about, (1, 4), publics), 64, bits=32)
    changed = [pair_mask_key(other, about, (1, 4), publics) for other in flips(secret)]
    changed += [pair_mask_key(secret, other, (1, 4), publics) for other in flips(about)]
    changed += [pair_mask_key(agreed(key, other), about, (1, 4), (publics[0], other)) for other in flips(their)]
    changed += [pair_mask_key(secret, about, pair, publics) for pair in ((1, 5), (0, 4))]
    assert len(set(changed)) == 3 * 256 + 2
    assert all(far_apart(mask, key_stream(other, 64, bits=32)) for other in changed)
    assert pair_mask_key(secret, about, (4, 1), publics[::-1]) == pair_mask_key(secret, about, (1, 4), publics)


def test_masks_depend_on_study_run_batch_members_and_sharers() -> None:
    values = np.zeros((6, 64), dtype=np.int64)
    runs = [Sum(CONTEXT, values), Sum(CONTEXT, values, absent={"share": [5]})]
    runs += [
        Sum(make_context(6, 1, 1, cells=64, batch=2), values),
        Sum(make_context(6, 1, 1, cells=64, run=b"2"), values),
    ]
    for running in runs:
        running.run()
    masked = [running.replies["mask"][0][0] for running in runs]
    assert all(far_apart(masked[0], other) for other in masked[1:])


def test_a_step_asked_twice_gives_the_same_reply() -> None:
    values = np.ones((6, 64), dtype=np.int64)
    first, second = Sum(CONTEXT, values), Sum(CONTEXT, values)
    first.run()
    second.run()
    for step, replies in first.replies.items():
        for index, reply in replies.items():
            for left, right in zip(reply, second.replies[step][index], strict=True):
                np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("keys", [1, 2])
def test_keys_of_an_agreed_secret_are_the_one_step_derivation(keys) -> None:
    """Of NIST SP 800-56C with SHA-512, by another implementation."""
    fixed_info = b"conclave secure sum 1 purpose\nabout" + keys.to_bytes(4, "big")
    oracle = ConcatKDFHash(hashes.SHA512(), 32 * keys, fixed_info).derive(bytes(range(32)))
    assert pairwise(bytes(range(32)), b"purpose", b"about", keys=keys) == oracle


def test_a_public_key_of_low_order_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="low order"):
        agreed(X25519PrivateKey.generate(), bytes(32))


@pytest.mark.parametrize(("length", "index"), [(31, 0), (33, 0), (32, -1), (32, 6)])
def test_a_secret_of_another_size_or_an_unknown_party_is_refused(length, index) -> None:
    with refuses(InvalidInput, "allowed"):
        Secrets(bytes(length), CONTEXT, index)
    assert SECRET_BYTES == 32
    assert Member(CONTEXT, 0, np.zeros(64, dtype=np.int64)).batch_secret != bytes(32)
