"""Identity: names, certificates and requests, and what is refused of them."""

import datetime

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from protocols.crypto.identity import (
    certificate_from_der,
    certificate_from_pem,
    certificate_request,
    check_name,
    fingerprint,
    identify,
    issue,
    key_to_pem,
    may_dial,
    new_authority,
    new_key,
    private_key_from_pem,
    request_fingerprint,
    request_from_pem,
    sign,
    to_pem,
)
from protocols.errors import InvalidInput
from tests.harness.refusals import refused_for, refuses

NOW = datetime.datetime.now(datetime.UTC)
ROOT_KEY, KEY = new_key(), new_key()
ROOT = new_authority(ROOT_KEY, name="consortium", now=NOW, days=9)


def party(name="hospital", **changes):
    terms = {"authority": ROOT, "authority_key": ROOT_KEY, "public_key": KEY.public_key(), "role": "party"}
    return issue(**(terms | {"name": name, "now": NOW, "days": 5} | changes))


def test_a_certificate_names_its_party_and_its_key():
    identity = identify(certificate_from_pem(to_pem(party())), authority=ROOT, now=NOW, role="party")
    assert identity.name == "hospital"
    assert identity.fingerprint == fingerprint(KEY.public_key())
    identity.verify(sign(KEY, b"message"), b"message")
    with refused_for("bad_signature"):
        identity.verify(sign(KEY, b"message"), b"massage")


def test_a_party_that_is_called_like_a_coordinator_is_still_a_party():
    with refused_for("wrong_role"):
        identify(party("coordinator"), authority=ROOT, now=NOW, role="coordinator")


def test_a_coordinator_and_a_party_may_dial_and_a_guardian_is_dialled():
    assert [may_dial(party(role=role)) for role in ("coordinator", "party", "guardian")] == [True, True, False]
    assert not may_dial(ROOT)
    with refuses(InvalidInput, "coordinator, guardian, party"):
        party(role="authority")


def test_a_certificate_that_a_party_issued_is_worth_nothing():
    stranger = new_key()
    forged = issue(
        authority=party(), authority_key=KEY, public_key=stranger.public_key(), name="x", role="party", now=NOW, days=3
    )
    with refused_for("wrong_authority"):
        identify(forged, authority=ROOT, now=NOW, role="party")


def test_a_certificate_that_was_checked_before_is_checked_again_if_its_signature_differs():
    known = party()
    identify(known, authority=ROOT, now=NOW, role="party")
    der = bytearray(known.public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    with refused_for("wrong_authority"):
        identify(certificate_from_der(bytes(der)), authority=ROOT, now=NOW, role="party")
    with refused_for("wrong_role"):
        identify(known, authority=ROOT, now=NOW, role="coordinator")
    with refused_for("certificate_expired"):
        identify(known, authority=ROOT, now=NOW + datetime.timedelta(days=6), role="party")


def test_keys_and_requests_come_back_as_they_were_written():
    assert private_key_from_pem(key_to_pem(KEY)).private_numbers() == KEY.private_numbers()
    request = request_from_pem(to_pem(certificate_request(KEY, name="hospital")))
    assert request_fingerprint(request) == fingerprint(KEY.public_key())
    assert len(fingerprint(KEY.public_key())) == 32 * 3 - 1


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())], ids=["RSA", "P-384"]
)
def test_keys_of_another_kind_are_refused(key):
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with refuses(InvalidInput, "allowed"):
        private_key_from_pem(pem)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_key_certificate_or_request(data):
    for reader in (private_key_from_pem, certificate_from_pem, request_from_pem):
        with refuses(InvalidInput, "allowed"):
            reader(data)


@pytest.mark.parametrize("name", ["", ".", "-a", "a-", "a/b", "a b", "ä", "a" * 65, "a\n"])
def test_names_that_a_file_or_a_certificate_cannot_carry_are_refused(name):
    with refuses(InvalidInput, "allowed"):
        check_name(name)


@pytest.mark.parametrize("days", [0, -1, 40_000])
def test_a_validity_out_of_range_is_refused(days):
    with refuses(InvalidInput, "allowed"):
        party(days=days)
