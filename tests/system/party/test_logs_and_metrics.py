import io
import json
import urllib.error
import urllib.request

import pytest

from party.logs import Log
from party.metrics import Counts, Metrics, exposition
from protocols.errors import StorageFailed


def test_only_fields_on_the_list_reach_the_log_and_no_text_can_break_its_line():
    out = io.StringIO()
    Log(out, clock=lambda: 0.0)("refused", {"code": "x\n\x1b[31m", "votes": "1 0 1", "record": 7, "skew_ms": -3})
    line = json.loads(out.getvalue())
    assert line == {
        "time": "1970-01-01T00:00:00Z",
        "event": "refused",
        "code": "x??[31m",
        "skew_ms": -3,
    }
    assert out.getvalue().count("\n") == 1


def test_a_long_text_is_cut():
    out = io.StringIO()
    Log(out)("refused", {"reason": "x" * 10_000})
    assert len(out.getvalue()) < 700


def test_health_follows_the_connection_and_metrics_are_prometheus_text():
    counts = Counts()
    with Metrics(0, healthy=lambda: counts.connected, samples=counts.samples) as served:
        at = f"http://127.0.0.1:{served.port}"
        with pytest.raises(urllib.error.HTTPError, match="503") as failed:
            urllib.request.urlopen(f"{at}/healthz")
        failed.value.close()
        counts("connected", {})
        with urllib.request.urlopen(f"{at}/healthz") as reply:
            assert reply.status == 200
        counts("disconnected", {})
        counts("connected", {})
        with urllib.request.urlopen(f"{at}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        assert 'conclave_events_total{event="connected"} 2' in lines
        assert "conclave_connected 1" in lines
        with pytest.raises(urllib.error.HTTPError, match="404") as failed:
            urllib.request.urlopen(f"{at}/etc/passwd")
        failed.value.close()
        with pytest.raises(StorageFailed, match="choose another"):
            Metrics(served.port, healthy=lambda: True, samples=dict)


def test_labels_are_escaped():
    text = exposition({"a": [({"study": 'x"\n\\'}, 1.5)]})
    assert text.splitlines()[1] == r'a{study="x\"\n\\"} 1.5'
