"""The Grafana dashboard in deploy/: every metric and event that it shows exists."""

import json
import re
from pathlib import Path

from coordinator.status import status_metrics as coordinators
from party.commands.running import node_metrics as nodes
from party.live import Recent
from protocols.crypto.identity import new_key, to_pem
from runtime.loopback import exposition
from tests.harness.certifying import Certifying

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8"))
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


class Node(Certifying):
    """A node without a study, as far as its metrics ask."""

    def __init__(self, folder):
        self.make_authority()
        self.party, self.certificate = "north", folder / "certificate.pem"
        self.certificate.write_bytes(to_pem(self.certify(new_key(), self.party)))

    def invitation(self):
        return self

    path = None

    def check_newest(self, home):
        return None

    def own_approvals(self, home):
        return []

    def seats(self):
        return []

    lifetime_uses = seats


def test_every_metric_of_the_dashboard_is_one_that_a_node_or_a_coordinator_has(tmp_path):
    node = Node(tmp_path)
    status = {"studies": [], "connected": [], "pending_requests": [], "parties": []}
    page = exposition([*nodes(node, node, node, Recent()), *coordinators(status)], {})
    known = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    shown = {name for each in EXPRESSIONS for name in re.findall(r"conclave_\w+", each)}
    assert shown <= known
    assert known <= shown | {
        "conclave_seat_connected",
        "conclave_seat_epsilon_used",
        "conclave_seat_epsilon_guaranteed",
    }


def test_every_event_that_it_counts_is_one_that_a_program_logs():
    lists = [events for each in EXPRESSIONS for events in re.findall(r'event=~"([^"]+)"', each)]
    named = {event for events in lists for event in events.split("|")}
    sources = [
        path.read_text(encoding="utf-8") for room in ("party", "coordinator") for path in (ROOT / room).rglob("*.py")
    ]
    logged = {event for source in sources for event in re.findall(r'on_event\("(\w+)"', source)}
    assert named
    assert named <= logged
