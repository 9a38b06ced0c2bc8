"""Frames: what is sealed is what is unsealed, by whom it was signed, and nothing else gets through."""

import datetime

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.identity import fingerprint, issue, new_authority, new_key, sign
from protocols.errors import MalformedMessage, Refused
from protocols.ledger.audit_log import EMPTY, Head
from protocols.wire import wire_pb2
from protocols.wire.enrolment import ENROL_BYTES, Enrol, Enrolled, decode_enrol, decode_enrolled, encode_enrol
from protocols.wire.frames import (
    NONCE_BYTES,
    WIRE_VERSIONS,
    Answer,
    Ask,
    Goodbye,
    Hello,
    RefusedSeat,
    Renew,
    Renewed,
    SeatHeads,
    Welcome,
    agree_version,
    head_statement,
    read_frame,
    sign_frame,
)
from tests.harness.refusals import refused_for, refuses

NOW = datetime.datetime.now(datetime.UTC)
ROOT_KEY, KEY = new_key(), new_key()
ROOT = new_authority(ROOT_KEY, name="test", now=NOW, days=9)


def certificate(key=KEY, role="party", days=9, now=NOW):
    return issue(
        authority=ROOT, authority_key=ROOT_KEY, public_key=key.public_key(), name="h", role=role, now=now, days=days
    )


CERTIFICATE = certificate()
SEALED = sign_frame(Goodbye("code", "reason"), key=KEY, certificate=CERTIFICATE)


def recipe(kind, *arguments):
    """How to build a value. It is built in the test: run-time type checks draw samples, which strategies must not."""
    return st.tuples(st.just(kind), *arguments)


def build(made):
    """The value of a recipe, with what is in it."""
    if isinstance(made, tuple) and made and isinstance(made[0], type):
        return made[0](*(build(each) for each in made[1:]))
    return tuple(build(each) for each in made) if isinstance(made, tuple) else made


hashes = st.binary(min_size=32, max_size=32)
nonces = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)
words = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
heads = recipe(Head, st.integers(0, 2**53 - 1), hashes)
counts = st.integers(1, 2**53 - 1)
of_seats = recipe(
    SeatHeads, hashes, words, heads, heads, st.lists(hashes, max_size=3).map(tuple), st.binary(max_size=99)
)
frames = st.one_of(
    recipe(
        Hello,
        st.lists(st.integers(1, 99)).map(tuple),
        words,
        nonces,
        st.lists(of_seats, max_size=3).map(tuple),
        st.lists(hashes, max_size=3).map(tuple),
    ),
    recipe(
        Welcome,
        st.integers(1, 99),
        nonces,
        st.integers(0, 2**47),
        st.lists(recipe(RefusedSeat, hashes, words, words, words), max_size=3).map(tuple),
    ),
    recipe(Ask, nonces, counts, nonces, hashes, words, heads, heads, st.binary(max_size=99)),
    recipe(Answer, nonces, counts, hashes, words, heads, heads, st.binary(max_size=99)),
    recipe(Renew, st.binary(max_size=99)),
    recipe(Renewed, st.binary(max_size=99)),
    recipe(Goodbye, words, words),
)


def open_it(data, *, role="party", now=NOW, authority=ROOT):
    return read_frame(data, authority=authority, now=now, role=role)


@given(frames)
def test_a_frame_comes_back_as_it_was_sealed_with_its_signer(made):
    frame = build(made)
    opened, signer = open_it(sign_frame(frame, key=KEY, certificate=CERTIFICATE))
    assert opened == frame
    assert (signer.name, signer.role) == ("h", "party")


@settings(max_examples=100)
@given(st.data())
def test_no_altered_byte_changes_a_frame_or_its_signer(data):
    sealed = bytearray(SEALED)
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    try:
        frame, signer = open_it(bytes(sealed))
    except (MalformedMessage, Refused):
        return
    # The encoding of a certificate has a byte that means nothing; what it says is as it was.
    assert frame == Goodbye("code", "reason")
    assert signer.fingerprint == fingerprint(KEY.public_key())


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_any_bytes_are_malformed_or_refused_and_nothing_else(data):
    with pytest.raises((MalformedMessage, Refused)):
        open_it(data)


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_body_that_is_signed_is_a_frame_or_malformed(body):

    try:
        frame, _ = open_it(signed(body))
    except MalformedMessage:
        return
    assert type(frame).__name__ in {"Hello", "Welcome", "Ask", "Answer", "Renew", "Renewed", "Goodbye"}


def test_a_signature_of_another_key_is_refused():
    with refused_for("bad_signature"):
        open_it(sign_frame(Goodbye("a", "b"), key=new_key(), certificate=CERTIFICATE))


def signed(body):
    """A frame of any body, under a valid signature."""
    return wire_pb2.Signed(
        body=body,
        signature=sign(KEY, b"conclave frame 1\n" + body),
        certificate=CERTIFICATE.public_bytes(serialization.Encoding.DER),
    ).SerializeToString()


@pytest.mark.parametrize(
    "proof", [b"", b"no signature", sign(KEY, head_statement(b"s" * 32, Head(2, b"h" * 32)))], ids=["none", "no", "of"]
)
def test_a_question_whose_own_head_is_not_signed_is_refused_so_that_no_claim_of_it_stays_unproven(proof):
    ask = Ask(b"n" * 16, 1, b"n" * 16, b"s" * 32, "h", Head(1, b"h" * 32), EMPTY, b"")
    body = wire_pb2.Frame.FromString(wire_pb2.Signed.FromString(sign_frame(ask, key=KEY, certificate=CERTIFICATE)).body)
    opened, signer = open_it(signed(body.SerializeToString()))
    signer.verify(opened.proof, head_statement(ask.study, ask.own))
    body.ask.proof = proof
    with refused_for("bad_signature"):
        open_it(signed(body.SerializeToString()))


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("wrong_role", {"role": "coordinator"}),
        ("certificate_expired", {"now": NOW + datetime.timedelta(days=10)}),
        ("certificate_expired", {"now": NOW - datetime.timedelta(days=2)}),
        ("wrong_authority", {"authority": new_authority(new_key(), name="test", now=NOW, days=9)}),
    ],
)
def test_who_signed_is_checked_against_authority_role_and_time(code, change):
    with pytest.raises(Refused) as refused:
        open_it(sign_frame(Goodbye("a", "b"), key=KEY, certificate=CERTIFICATE), **change)
    assert refused.value.code == code


@pytest.mark.parametrize("short", [0, 15, 17])
def test_nonces_and_digests_of_another_length_are_malformed(short):
    for frame in (
        Ask(b"n" * short, 1, b"n" * 16, b"s" * 32, "h", EMPTY, EMPTY, b""),
        Hello((1,), "", b"n" * short, ()),
    ):
        with pytest.raises(MalformedMessage):
            open_it(sign_frame(frame, key=KEY, certificate=CERTIFICATE))
    with pytest.raises(MalformedMessage):
        open_it(
            sign_frame(
                Ask(b"n" * 16, 1, b"n" * 16, b"s" * short, "h", EMPTY, EMPTY, b""), key=KEY, certificate=CERTIFICATE
            )
        )


def test_versions_are_agreed_newest_first_and_named_when_there_is_none():
    assert agree_version((WIRE_VERSIONS[0], 99)) == WIRE_VERSIONS[0]
    with refused_for("wire_version"):
        agree_version((98, 99))


def test_one_version_back_is_still_spoken(monkeypatch):
    monkeypatch.setattr("protocols.wire.frames.WIRE_VERSIONS", (2, 1))
    assert agree_version((1,)) == 1
    assert agree_version((3, 2)) == 2


@given(words, st.binary(max_size=40), st.binary(max_size=99))
def test_enrolment_comes_back_as_it_was_sent(name, token, request):
    assert decode_enrol(encode_enrol(Enrol(name, token, request))) == Enrol(name, token, request)
    assert decode_enrolled(encode_enrol(Enrolled(request, name, name))) == Enrolled(request, name, name)


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_enrolment_or_malformed(data):
    for decoder in (decode_enrol, decode_enrolled):
        try:
            made = decoder(data)
        except MalformedMessage:
            continue
        assert decoder(encode_enrol(made)) == made


def test_an_enrolment_above_the_cap_is_malformed_before_it_is_parsed():
    with refuses(MalformedMessage, "allowed"):
        decode_enrol(b"\x0a" * (ENROL_BYTES + 1))
