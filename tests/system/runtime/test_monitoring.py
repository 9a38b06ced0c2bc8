import re
import urllib.error
import urllib.request

import pytest

from coordinator.status import status_metrics
from protocols.errors import InvalidInput
from runtime.loopback import Family, Monitor, exposition
from tests.harness.refusals import refuses

SEAT = {
    "seat": 'odd"name\\',
    "connected": True,
    "answers_left": 7,
    "epsilon_used": 0.1,
    "epsilon_guaranteed": 1.0,
    "left_out": 0,
}
STATUS = {
    "studies": [{"study": "s", "batches": 2, "asked": 20, "answered": 9, "seats": [SEAT]}],
    "connected": [{}, {}],
    "pending_requests": [],
    "parties": [{"party": "a", "days_left": 12.5}],
}


def test_every_line_is_of_the_text_format_and_every_family_is_explained():
    page = exposition(status_metrics(STATUS), {"connected": 3})
    sample = re.compile(r'([a-z_]+)(\{[a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z]+="(?:[^"\\]|\\.)*")*\})? [-+0-9.einf]+')
    explained = set()
    for line in page.splitlines():
        if line.startswith("# "):
            explained.add(line.split()[2])
        else:
            match = sample.fullmatch(line)
            assert match, line
            assert match.group(1) in explained
    assert page.endswith("\n")


def test_figures_are_those_of_the_status():
    page = exposition(status_metrics(STATUS), {"connected": 3})
    assert "conclave_parties_connected 2\n" in page
    assert 'conclave_study_answered{study="s"} 9\n' in page
    assert 'conclave_seat_answers_left{study="s",seat="odd\\"name\\\\"} 7\n' in page
    assert 'conclave_seat_epsilon_used{study="s",seat="odd\\"name\\\\"} 0.10000000000000001\n' in page
    assert 'conclave_certificate_days_left{party="a"} 12.5\n' in page
    assert 'conclave_events_total{event="connected"} 3\n' in page


def test_labels_are_escaped():
    page = exposition([Family("a", "what it is", [({"study": 'x"\n\\'}, 1.5)])], {})
    assert page.splitlines()[2] == r'a{study="x\"\n\\"} 1.5'


def test_health_is_what_the_program_says_and_nothing_else_can_be_asked():
    well = []
    monitor = Monitor(0, healthy=lambda: bool(well), metrics=lambda: exposition([], {"connected": 2}))
    try:
        at = f"http://127.0.0.1:{monitor.port}"
        for path, status in (("/healthz", 503), ("/etc/passwd", 404)):
            with pytest.raises(urllib.error.HTTPError, match=str(status)) as failed:
                urllib.request.urlopen(at + path)
            failed.value.close()
        well.append(1)
        with urllib.request.urlopen(f"{at}/healthz") as reply:
            assert reply.status == 200
        with urllib.request.urlopen(f"{at}/metrics") as reply:
            assert 'conclave_events_total{event="connected"} 2' in reply.read().decode().splitlines()
        with refuses(InvalidInput, "a free one"):
            Monitor(monitor.port, healthy=lambda: True, metrics=str)
    finally:
        monitor.close()
