import re

from runtime.metrics import prometheus

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
    page = prometheus(STATUS, {"connected": 3})
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
    page = prometheus(STATUS, {"connected": 3})
    assert "conclave_parties_connected 2\n" in page
    assert 'conclave_study_answered{study="s"} 9\n' in page
    assert 'conclave_seat_answers_left{study="s",seat="odd\\"name\\\\"} 7\n' in page
    assert 'conclave_seat_epsilon_used{study="s",seat="odd\\"name\\\\"} 0.10000000000000001\n' in page
    assert 'conclave_certificate_days_left{party="a"} 12.5\n' in page
    assert 'conclave_events_total{event="connected"} 3\n' in page
