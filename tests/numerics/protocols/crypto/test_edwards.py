"""Points of edwards25519 and X25519's keys: against the formulas of RFC 7748, and proofs about them."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto import edwards
from protocols.crypto.edwards import (
    LOW_ORDER,
    ORDER,
    PRIME,
    PROOF_BYTES,
    all_lifted,
    cleared,
    encoded,
    evened,
    is_point,
    is_public_key,
    knows_logarithm,
    lifted,
    multiple,
    multiple_of_base,
    private_key,
    projected,
    prove,
    proves,
)
from protocols.errors import MalformedMessage
from tests.harness.refusals import refuses

keys = st.binary(min_size=32, max_size=32)
scalars = st.integers(1, ORDER - 1)


def ladder(scalar, u):
    """RFC 7748, section 5, without clamping: u of the scalar times a point with this u, 0 for the neutral element."""
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in range(scalar.bit_length() - 1, -1, -1):
        swap = scalar >> bit & 1
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = (x2 + z2) % PRIME, (x2 - z2) % PRIME, (x3 + z3) % PRIME, (x3 - z3) % PRIME
        aa, bb, da, cb = a * a % PRIME, b * b % PRIME, d * a % PRIME, c * b % PRIME
        e = (aa - bb) % PRIME
        x3, z3 = (da + cb) ** 2 % PRIME, u * (da - cb) ** 2 % PRIME
        x2, z2 = aa * bb % PRIME, e * (aa + 121665 * e) % PRIME
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return x2 * pow(z2, PRIME - 2, PRIME) % PRIME


def test_keys_of_low_order_are_all_those_with_which_8_gives_nothing() -> None:
    """8 P = 0 has 8 solutions on the curve and 4 on its twist, which have 5 values of u between them."""
    assert {u for u in LOW_ORDER if ladder(8, u) == 0} == LOW_ORDER
    assert len(LOW_ORDER) == 5
    for u in LOW_ORDER:
        assert not is_public_key(encoded(u))
        with refuses(ValueError, "shared key"):
            X25519PrivateKey.from_private_bytes(bytes(range(32))).exchange(
                X25519PublicKey.from_public_bytes(encoded(u))
            )


@pytest.mark.parametrize("u", [PRIME, PRIME + 9, 2**255 + 9, 2**256 - 1])
def test_a_key_has_one_encoding(u) -> None:
    assert is_public_key(encoded(9))
    assert not is_public_key(encoded(u))


@given(key=keys)
@settings(max_examples=40)
def test_a_private_key_its_scalar_and_its_point_agree(key) -> None:
    scalar, point = evened(key)
    public = X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
    assert is_public_key(public)
    assert projected(point) == public == encoded(ladder(scalar, 9))
    assert lifted(public) == point == multiple_of_base(scalar)
    back = private_key(scalar)
    assert back is not None
    assert X25519PrivateKey.from_private_bytes(back).public_key().public_bytes_raw() == public


@given(key=keys, scalar=scalars)
@settings(max_examples=40)
def test_a_scalar_agrees_as_its_private_key_does_if_it_has_one(key, scalar) -> None:
    own, point = evened(key)
    shared = projected(multiple(scalar, point))
    assert shared == encoded(ladder(scalar, int.from_bytes(projected(point), "little")))
    found = private_key(scalar)
    if found is not None:
        public = X25519PublicKey.from_public_bytes(projected(point))
        assert X25519PrivateKey.from_private_bytes(found).exchange(public) == shared
    assert shared == projected(multiple(own, multiple_of_base(scalar)))


def test_all_keys_are_lifted_as_each_is_and_keys_on_the_twist_are_no_points() -> None:
    publics = [evened(bytes([number]) * 32)[1] for number in range(5)]
    many = [projected(point) for point in publics] + [encoded(2), encoded(PRIME - 1)]
    assert all_lifted(many) == [lifted(key) for key in many]
    assert [is_point(point) for point in all_lifted(many)] == [True] * 5 + [False] * 2
    with refuses(MalformedMessage, "group"):
        multiple(5, lifted(encoded(2)))
    with refuses(MalformedMessage, "group"):
        multiple_of_base(ORDER)


@given(scalar=scalars, base=st.integers(2, ORDER - 1), nonce=scalars, bit=st.integers(0, 8 * PROOF_BYTES - 1))
@settings(max_examples=30)
def test_a_proof_of_the_same_logarithm_convinces_and_no_other_does(scalar, base, nonce, bit) -> None:
    public, other = multiple_of_base(scalar), multiple_of_base(base)
    point, proof = prove(scalar, other, about=b"about", nonce=nonce.to_bytes(64, "little"))
    assert point == multiple(scalar, other)
    assert proves(public, other, point, proof, about=b"about")
    assert not proves(public, other, point, proof, about=b"other")
    assert not proves(public, other, multiple_of_base(scalar * base + 1), proof, about=b"about")
    assert not proves(multiple_of_base(scalar + 1 if scalar + 1 < ORDER else 1), other, point, proof, about=b"about")
    altered = bytearray(proof)
    altered[bit // 8] ^= 1 << bit % 8
    assert not proves(public, other, point, bytes(altered), about=b"about")


def test_a_proof_of_made_up_bytes_is_none() -> None:
    assert not proves(bytes(32), bytes(32), bytes(32), bytes(PROOF_BYTES), about=b"")
    assert not proves(b"\xff" * 32, b"\xff" * 32, b"\xff" * 32, b"\xff" * PROOF_BYTES, about=b"")


def with_the_point_of_order_two(point: bytes) -> bytes:
    """The sum of (x, y) and (0, -1): (-x, -y)."""
    y, sign = int.from_bytes(point, "little") % 2**255, point[-1] & 0x80
    other = bytearray(encoded(PRIME - y))
    other[-1] |= sign ^ 0x80
    return bytes(other)


def test_a_point_and_the_one_of_order_two_are_no_point_whatever_libsodium_says(monkeypatch):
    """libsodium took their sum for one of the subgroup (CVE-2025-69277), and multiplied it."""
    point = multiple_of_base(7)
    other = with_the_point_of_order_two(point)
    assert not is_point(other)
    monkeypatch.setattr(edwards.group, "crypto_core_ed25519_is_valid_point", lambda point: True)
    assert is_point(point)
    assert not is_point(other)


@given(scalar=scalars)
@settings(max_examples=20)
def test_eight_times_a_point_is_in_the_subgroup_whatever_the_point_has_beside_it(scalar) -> None:
    point = multiple_of_base(scalar)
    assert cleared(point) == cleared(with_the_point_of_order_two(point)) == multiple(8, point)


def test_what_is_no_point_of_the_curve_has_no_multiple() -> None:
    with refuses(MalformedMessage, "group"):
        cleared(lifted(encoded(2)))


@given(key=keys, message=st.binary(max_size=40), bit=st.integers(0, 8 * 64 - 1))
@settings(max_examples=20)
def test_an_ed25519_signature_shows_that_its_maker_knows_the_logarithm_and_no_other_does(key, message, bit) -> None:
    signer = Ed25519PrivateKey.from_private_bytes(key)
    public, signature = signer.public_key().public_bytes_raw(), signer.sign(message)
    assert knows_logarithm(public, signature[:32], signature[32:], message)
    assert not knows_logarithm(public, signature[:32], signature[32:], message + b"x")
    assert not knows_logarithm(multiple_of_base(5), signature[:32], signature[32:], message)
    altered = bytearray(signature)
    altered[bit // 8] ^= 1 << bit % 8
    assert not knows_logarithm(public, bytes(altered[:32]), bytes(altered[32:]), message)
    assert not knows_logarithm(lifted(encoded(2)), signature[:32], signature[32:], message)
