"""Whom a guardian's port lets in, whom a coordinator takes for its guardian, and bytes that neither sends."""

import datetime
from contextlib import contextmanager
from dataclasses import replace

import grpc
import pytest

from coordinator.serving import check_guardian, dial
from protocols.crypto.identity import GUARDIAN_HOST, key_to_pem, new_authority, new_key, to_pem
from protocols.errors import ChannelClosed, InvalidInput, Refused
from protocols.wire.guardian import CARRIED_BYTES, CONVERSE_METHOD, Opening
from tests.harness.guardians import Guardianship, guarded_study
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import NOW


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"role": "party"}, "wrong_role"),
        ({"name": "another-centre"}, "other_coordinator"),
        ({"name": "another-centre", "role": "party"}, "not_querier"),
    ],
)
def test_only_the_coordinator_of_the_terms_is_let_in(served, changes, code):
    world, line = served
    before = len(world.events)
    with refused_for(code):
        check_guardian(world.study, world.line(line.address, **changes))
    assert code in world.codes()[before:]


def test_a_coordinator_with_a_guardians_certificate_is_not_let_in(served):
    world, line = served
    # A guardian's certificate is for servers alone: TLS does not take it from whoever dials.
    with pytest.raises(ChannelClosed):
        check_guardian(world.study, world.line(line.address, role="guardian"))


def test_a_guardians_certificate_must_be_valid_at_the_time_that_the_line_gives(served):
    world, line = served
    later = NOW + datetime.timedelta(days=10_000)
    with refuses(Refused, later.year) as refused:
        check_guardian(world.study, replace(line, now=lambda: later))
    assert refused.value.code == "certificate_expired"


def test_an_expired_or_foreign_certificate_of_the_coordinator_is_not_let_in(served):
    world, line = served
    past = NOW - datetime.timedelta(days=9)
    expired = world.certify(world.key, "centre", "coordinator", days=3, now=past)
    with pytest.raises(ChannelClosed):
        check_guardian(world.study, replace(line, certificate=expired))
    stranger = Guardianship()
    with refused_for("wrong_authority"):
        check_guardian(world.study, stranger.line(line.address))
    wrong = replace(stranger.line(line.address), authority=world.authority)
    with pytest.raises(ChannelClosed):
        check_guardian(world.study, wrong)


def test_a_coordinator_that_the_guardian_denies_is_not_let_in():
    world = Guardianship(denied_there={"centre": "its key was read by others"})
    with world.open() as line, refused_for("revoked"):
        check_guardian(world.study, line)


def test_a_study_that_was_not_approved_or_has_ended_is_refused(served):
    world, line = served
    with refused_for("unknown_study"):
        check_guardian(guarded_study(4), line)
    study = guarded_study()
    ended = replace(study, terms=replace(study.terms, ends="2020-01-01"))
    world = Guardianship(study=ended)
    with world.open() as line, refused_for("study_ended"):
        check_guardian(ended, line)


def test_a_guardian_of_another_name_than_the_terms_is_refused():
    other = Guardianship()
    with other.open(name="another-notary") as line, refused_for("wrong_guardian", "notary"):
        check_guardian(other.study, line)


def test_a_guardian_that_is_denied_is_refused():
    world = Guardianship(denied={"notary": "revoked by the operator"})
    with world.open() as line:
        with refused_for("revoked"):
            check_guardian(world.study, line)
        with refused_for("revoked"), dial(world.study, line):
            pass


@pytest.mark.parametrize("role", ["coordinator", "party"])
def test_whoever_answers_with_another_role_is_no_guardian(role):
    world = Guardianship(role=role)
    with world.open(name="centre") as line, refused_for("wrong_role"):
        check_guardian(world.study, line)


def test_a_guardian_with_the_coordinators_own_key_is_the_same_organisation():
    world = Guardianship()
    with world.open(key=world.key) as line, refused_for("same_organisation"):
        check_guardian(world.study, line)
    assert "same_organisation" in world.codes()  # the guardian sees it too


@pytest.mark.parametrize("name", ["centre", "hospital-1"])
def test_terms_that_name_the_coordinator_or_a_party_as_guardian_make_no_study(name):
    with refuses(InvalidInput, name):
        guarded_study(guardian=name)


def test_a_guardian_of_another_consortium_is_refused(served):
    world, line = served
    foreign = new_authority(new_key(), name="other", now=NOW, days=9)
    with refused_for("wrong_authority"):
        check_guardian(world.study, replace(line, authority=foreign))


@contextmanager
def raw_stream(line, pieces):
    """The pieces that a port answers to any pieces, from whoever holds this line's key."""
    credentials = grpc.ssl_channel_credentials(to_pem(line.authority), key_to_pem(line.key), to_pem(line.certificate))
    options = [("grpc.ssl_target_name_override", GUARDIAN_HOST), ("grpc.max_send_message_length", 2**24)]
    with grpc.secure_channel(line.address, credentials, options) as channel:
        yield channel.stream_stream(CONVERSE_METHOD)(iter(pieces), timeout=300)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b""],
        [b"\x07"],
        [b"\x01"],
        [b"\x01" + bytes(50)],
        [b"\x01" + bytes(CARRIED_BYTES)],
        [b"\x00" + bytes(CARRIED_BYTES - 1)],
        [b"\x02busy\nnobody"],
        [b"\x01"] * 1000,
        [bytes(2**23)],
    ],
    ids=["nothing", "no kind", "no such kind", "empty", "zeros", "too long", "a part alone", "goodbye", "many", "huge"],
)
def test_whatever_a_coordinator_sends_the_port_answers_or_hangs_up_and_serves_on(served, pieces):
    world, line = served
    with raw_stream(line, pieces) as answers:
        try:
            assert all(len(piece) <= CARRIED_BYTES for piece in answers)
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)  # noqa: PT017
    check_guardian(world.study, line)


def test_without_a_certificate_nobody_gets_through(served):
    world, line = served
    credentials = grpc.ssl_channel_credentials(to_pem(world.authority))
    options = [("grpc.ssl_target_name_override", GUARDIAN_HOST)]
    with grpc.secure_channel(line.address, credentials, options) as channel:
        call = channel.stream_stream(CONVERSE_METHOD)(iter([b""]), timeout=300)
        with pytest.raises(grpc.RpcError) as refused:
            list(call)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_an_opening_of_another_version_is_refused(served, monkeypatch):
    world, line = served
    real = Opening.encode
    monkeypatch.setattr(Opening, "encode", lambda opening: b"\x02" + real(opening)[1:])
    with refused_for("wire_version"):
        check_guardian(world.study, line)
    monkeypatch.setattr(Opening, "encode", lambda opening: b"\x01")
    with refused_for("malformed"):
        check_guardian(world.study, line)
