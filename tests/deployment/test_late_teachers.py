"""Real processes on a machine that has other things to do, and a deadline that cold teachers cannot keep."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from party.demo.demo import LocalConsortium, demo_study
from party.demo.demo_data import HOSPITALS, demo_data

# Load that ends by itself.
BUSY = "import time; end = time.monotonic() + 240\nwhile time.monotonic() < end: pass"
TIME_S = 240.0


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    data = demo_data(None)
    study = demo_study(data)
    study = replace(study, quorum=4, terms=replace(study.terms, deadline_s=0.4))
    made = LocalConsortium(tmp_path_factory.mktemp("late"), data, study, say=lambda line: None)
    busy = []
    try:
        made.set_up()
        busy += [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
        yield made
    finally:
        made.stop()
        for each in busy:
            each.kill()
            each.wait()


def events(consortium, name):
    return [json.loads(line) for line in (consortium.folder / f"{name}.log").read_text().splitlines()]


@pytest.mark.slow
def test_hospitals_whose_teachers_are_late_finish_the_study_together_and_pay_once(consortium):
    labelling = subprocess.Popen(
        [sys.executable, "-m", "coordinator", "label", "demo", "--wait", "--home", str(consortium.folder / "centre")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for name in HOSPITALS:  # they are asked as soon as they connect
        consortium.start(name)
    try:
        assert labelling.wait(timeout=TIME_S) == 0
    finally:
        labelling.kill()
        labelling.wait()
    (shown,) = json.loads(consortium.coordinator("status", "--json"))["studies"]
    assert shown["state"] in ("finished", "labelled")
    assert any(each["event"] == "teachers_late" for name in HOSPITALS for each in events(consortium, name))
    for name in HOSPITALS:
        happened = [each["event"] for each in events(consortium, name)]
        assert happened.count("teachers_started") == 1
        assert "teachers_ended" not in happened
    consortium.finish()  # the release verifies, and each hospital's audit of it holds
