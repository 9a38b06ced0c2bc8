"""A conversation of wire version 1 as it was recorded is read and written byte for byte by this version."""

import base64
import datetime
import json
from pathlib import Path

import pytest

from protocols.crypto.identity import certificate_from_pem
from protocols.wire import frames, wire_pb2
from protocols.wire.frames import WIRE_VERSIONS, Answer, Ask, Hello, Welcome, read_frame
from protocols.wire.messages import Outcome, Settled, VoteReply, VoteRequest, decode, encode
from tests.harness.refusals import refused_for

STORED = json.loads((Path(__file__).parents[3] / "vectors" / "conversation.json").read_text(encoding="utf-8"))
AUTHORITY = certificate_from_pem(STORED["authority"].encode())
NOW = datetime.datetime.fromisoformat(STORED["now"])
SENT = [(each["role"], each["kind"], base64.b64decode(each["frame"])) for each in STORED["frames"]]


def read(role, data):
    return read_frame(data, authority=AUTHORITY, now=NOW, role=role)[0]


def test_it_is_a_study_from_hello_to_the_last_outcome():
    assert [kind for _, kind, _ in SENT[:2]] == ["Hello", "Welcome"]
    assert 1 in read("party", SENT[0][2]).versions
    assert read("coordinator", SENT[1][2]).version == 1
    carried = {type(decode(frame.envelope)) for frame in (read(role, data) for role, _, data in SENT[2:])}
    assert carried == {VoteRequest, VoteReply, Outcome, Settled}


@pytest.mark.parametrize(("role", "kind", "data"), SENT, ids=[f"{at}-{kind}" for at, (_, kind, _) in enumerate(SENT)])
def test_every_frame_is_read_and_written_as_it_was_sent(role, kind, data):
    frame = read(role, data)
    assert type(frame).__name__ == kind
    assert frames._encode(frame) == wire_pb2.Signed.FromString(data).body
    if isinstance(frame, Ask | Answer):
        assert encode(decode(frame.envelope)) == frame.envelope


def test_a_recorded_node_and_this_coordinator_agree_and_so_do_a_recorded_coordinator_and_this_node():
    hello, welcome = read("party", SENT[0][2]), read("coordinator", SENT[1][2])
    assert isinstance(hello, Hello)
    assert isinstance(welcome, Welcome)
    assert frames.agree_version(hello.versions) == welcome.version
    frames.check_version(welcome.version, offered=WIRE_VERSIONS)
    with refused_for("wire_version", 1, "[2, 3]"):
        frames.check_version(welcome.version, offered=(3, 2))
