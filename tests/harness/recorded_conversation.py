"""Records a conversation of wire version 1 as it travelled: python tests/harness/recorded_conversation.py.

One hospital at level clear, from Hello to the last outcome. Recording it anew is a change of the wire: once a version
of the software is released, the old file stays, and a changed wire gets a number of its own.
"""

import base64
import datetime
import json
import tempfile
from pathlib import Path

from coordinator.connection import hub
from party.connection import node
from protocols.crypto.identity import to_pem
from protocols.wire.frames import read_frame
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium
from tests.harness.studies import deployed_study

FILE = Path(__file__).parent.parent / "vectors" / "conversation.json"
NAME = "hospital-0"


def record(folder: Path) -> dict[str, object]:
    """The authority (PEM), the time (ISO 8601, UTC) and every frame in turn: its sender's role, its kind, its bytes."""
    frames: list[dict[str, str]] = []

    def noted(data, *, authority, now, role):
        frame, sender = read_frame(data, authority=authority, now=now, role=role)
        frames.append({"role": role, "kind": type(frame).__name__, "frame": base64.b64encode(data).decode()})
        return frame, sender

    kept = node.read_frame, hub.read_frame
    node.read_frame = hub.read_frame = noted
    try:
        with Consortium(deployed_study(1), folder) as consortium:
            consortium.start_all()
            consortium.label()
            wait_until(lambda: consortium.ledgers[NAME].unsettled() == [])
            authority = to_pem(consortium.authority).decode()
    finally:
        node.read_frame, hub.read_frame = kept
    return {"authority": authority, "now": datetime.datetime.now(datetime.UTC).isoformat(), "frames": frames}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        FILE.write_text(json.dumps(record(Path(place)), indent=1) + "\n", encoding="utf-8")
