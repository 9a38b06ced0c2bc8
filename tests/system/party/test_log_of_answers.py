"""What a node logs of the batches that it answers; and nothing but its own lines in that log."""

import os
import subprocess
import sys

import pytest

from party.budget.spending import spending
from runtime.logs import FIELDS
from tests.harness.consortium import Consortium
from tests.harness.studies import deployed_study

# A server that speaks no TLS: gRPC's C++ code says on standard error what it thinks of the handshake.
_SHOUTING = """
import socket, threading, grpc

def run_command(arguments):
    def answer():
        client, _ = server.accept()
        with client:
            client.sendall(b"HTTP/1.1 400 Bad\\r\\n\\r\\n")
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=answer, daemon=True).start()
    with grpc.secure_channel(f"127.0.0.1:{server.getsockname()[1]}", grpc.ssl_channel_credentials()) as channel:
        try:
            channel.unary_unary("/a/b")(b"", timeout=60)
        except grpc.RpcError as error:
            print(error.code())
"""


def test_every_batch_and_its_charge_is_one_event_and_so_is_what_its_outcome_returned(tmp_path):
    study = deployed_study(2, pool=20, batch_limit=8)
    with Consortium(study, tmp_path) as consortium:
        consortium.start_all()
        labelling = consortium.label()
        events = [(event, fields) for event, fields in consortium.events if event in ("answered", "settled")]
        spent = {name: ledger.balance(name).spent for name, ledger in consortium.ledgers.items()}
    for name, nano in spent.items():
        own = [(event, fields) for event, fields in events if fields["node"] == name]
        assert [event for event, _ in own] == ["answered", "settled"] * (len(own) // 2)
        answered = [fields for event, fields in own if event == "answered"]
        assert [each["batch"] for each in answered] == list(range(len(answered)))
        assert sum(each["queries"] for each in answered) == len(labelling.labels)
        last, found = own[-1][1], spending(study, name, nano)
        assert last["answers_left"] == found.answers_left
        assert last["epsilon_used"] == pytest.approx(found.epsilon_used, abs=1e-6)
        for fields in (fields for _, fields in own):
            kept = {key: value for key, value in fields.items() if key != "node"}
            assert all(isinstance(value, FIELDS[key]) for key, value in kept.items())


def test_what_grpc_says_itself_stays_out_of_a_programs_log(tmp_path):
    (tmp_path / "shouting.py").write_text(_SHOUTING)
    done = subprocess.run(
        [sys.executable, "-c", "from runtime.distribution import run_program; run_program('shouting')"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "StatusCode.UNAVAILABLE\n", "")
