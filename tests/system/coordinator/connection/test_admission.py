"""Who is at fault again and again is refused, and the log says so without being filled."""

import os

import grpc
import pytest

from coordinator.connection.admission import FAULTS, Admission
from protocols.crypto.identity import COORDINATOR_HOST, key_to_pem, to_pem
from protocols.errors import Refused
from protocols.wire.frames import NONCE_BYTES, SESSION_METHOD, Hello, sign_frame
from tests.harness.consortium import Consortium
from tests.harness.studies import deployed_study

NAME = "hospital-0"


def test_that_a_party_was_at_fault_too_often_is_logged_ever_more_seldom():
    events = []
    admission = Admission(on_event=lambda event, fields: events.append(fields))
    while admission.fault(NAME):
        pass
    for _ in range(100):
        with pytest.raises(Refused) as refused, admission.stream(NAME):
            pass
        admission.turned_away(NAME, "ipv4:10.0.0.1:1", refused.value, rivals=0)
    assert {fields["code"] for fields in events} == {"too_many_faults"}
    assert [fields["times"] for fields in events] == [1, 2, 4, 8, 16, 32, 64]


def test_a_storm_of_sessions_that_their_party_ends_at_once_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("coordinator.connection.sessions._BRIEF_S", 600.0)  # at once, as a busy machine has it
    with Consortium(deployed_study(2), tmp_path) as consortium:
        consortium.add_node(NAME)
        key, certificate = consortium.keys[NAME], consortium.certificates[NAME]
        credentials = grpc.ssl_channel_credentials(to_pem(consortium.authority), key_to_pem(key), to_pem(certificate))
        options = [("grpc.ssl_target_name_override", COORDINATOR_HOST)]
        with grpc.secure_channel(consortium.address, credentials, options=options) as channel:
            session = channel.stream_stream(SESSION_METHOD)
            for _ in range(2 * FAULTS):
                hello = Hello((1,), "storm", os.urandom(NONCE_BYTES), ())
                list(session(iter([sign_frame(hello, key=key, certificate=certificate)]), timeout=300))
        connected = sum(1 for event, _ in consortium.events if event == "connected")
        assert FAULTS <= connected <= FAULTS + 4
        assert "too_many_faults" in consortium.codes("turned_away")
        assert len(consortium.events) <= 2 * connected + 10
