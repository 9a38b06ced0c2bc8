"""Opening and welcome: what is said before a conversation, and what is refused of it."""

import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardian.port import SILENCE_S
from protocols.crypto.identity import GUARDIAN_HOST, issue, new_authority, new_key
from protocols.errors import MalformedMessage, Refused
from protocols.wire.guardian import (
    CONVERSE_METHOD,
    OPENING_BYTES,
    PIECE_BYTES,
    VERSION,
    WELCOME_BYTES,
    Opening,
    read_opening,
    read_welcome,
    welcome,
)
from tests.harness.refusals import refused_for

NOW = datetime.datetime.now(datetime.UTC)
ROOT_KEY, KEY = new_key(), new_key()
ROOT = new_authority(ROOT_KEY, name="consortium", now=NOW, days=9)
OPENING = Opening(b"s" * 32, "batch")


def certificate(role="guardian", key=KEY):
    return issue(
        authority=ROOT, authority_key=ROOT_KEY, public_key=key.public_key(), name="notary", role=role, now=NOW, days=5
    )


def read(data, opening=OPENING, now=NOW):
    return read_welcome(data, opening, authority=ROOT, now=now)


def test_the_page_on_the_wire_says_what_is_said_here():
    page = (Path(__file__).parents[5] / "docs" / "reference" / "wire.md").read_text(encoding="utf-8")
    assert f"`{CONVERSE_METHOD}`" in page
    assert f"`{GUARDIAN_HOST}`" in page
    assert f"version ({VERSION}), purpose (0: a check, 1: a batch), a nonce of 16 bytes" in page
    assert f"{PIECE_BYTES // 2**10} KiB and a byte" in page
    assert (SILENCE_S, OPENING_BYTES) == (120.0, 50), "two minutes"


@given(st.binary(min_size=32, max_size=32), st.sampled_from(["check", "batch"]))
def test_an_opening_comes_back_as_it_was_and_each_has_a_nonce_of_its_own(study, purpose):
    opening = Opening(study, purpose)
    assert len(opening.encode()) == OPENING_BYTES
    assert read_opening(opening.encode()) == opening
    assert Opening(study, purpose).nonce != opening.nonce


@given(st.binary(max_size=60))
def test_any_bytes_are_an_opening_or_are_refused(data):
    try:
        assert read_opening(data).encode() == data
    except (MalformedMessage, Refused) as error:
        assert "allowed" in str(error)  # noqa: PT017  # either outcome is right


def test_a_welcome_names_the_guardian_of_this_conversation_alone():
    said = welcome(OPENING, key=KEY, certificate=certificate())
    assert len(said) <= WELCOME_BYTES
    assert read(said).name == "notary"
    for other in (Opening(OPENING.study, "batch"), Opening(OPENING.study, "check", OPENING.nonce)):
        with refused_for("bad_signature"):
            read(said, other)


@pytest.mark.parametrize("role", ["coordinator", "party"])
def test_a_welcome_with_a_certificate_of_another_role_is_refused(role):
    with refused_for("wrong_role"):
        read(welcome(OPENING, key=KEY, certificate=certificate(role)))


def test_a_welcome_signed_by_another_key_is_refused_and_an_expired_one():
    with refused_for("bad_signature"):
        read(welcome(OPENING, key=new_key(), certificate=certificate()))
    with refused_for("certificate_expired"):
        read(welcome(OPENING, key=KEY, certificate=certificate()), now=NOW + datetime.timedelta(days=6))


def test_a_welcome_of_which_any_byte_was_altered_is_refused():
    said = welcome(OPENING, key=KEY, certificate=certificate())
    for at in range(len(said)):
        altered = bytearray(said)
        altered[at] ^= 0x21
        with pytest.raises((MalformedMessage, Refused)):
            read(bytes(altered))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_as_a_welcome(data):
    with pytest.raises((MalformedMessage, Refused)):
        read(data)
