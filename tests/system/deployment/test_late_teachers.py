"""Real processes, and a deadline that teachers cannot keep, as they are stopped until it has passed."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from party.demo.demo_data import HOSPITALS, demo_data, demo_study
from tests.harness.clocks import wait_until
from tests.harness.local_consortium import ConsortiumHere

pytestmark = pytest.mark.usefixtures("forked")
TIME_S = 600.0


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    data = replace(whole := demo_data(None), pool=whole.pool[:60])
    study = demo_study(data)
    study = replace(study, quorum=4, terms=replace(study.terms, deadline_s=5.0))
    made = ConsortiumHere(tmp_path_factory.mktemp("late"), data, study, say=lambda line: None)
    try:
        made.set_up()
        yield made
    finally:
        made.stop()


def events(consortium, name, event):
    """What a hospital's node logged of this kind; gRPC writes lines of its own there."""
    lines = (consortium.folder / f"{name}.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return [line for line in found if line["event"] == event]


@pytest.mark.slow
def test_hospitals_whose_teachers_are_late_finish_the_study_together_and_pay_once(consortium):
    labelling, teachers = None, []
    try:
        for name in HOSPITALS:
            consortium.start(name)
            wait_until(lambda at=name: events(consortium, at, "teachers_ready"), timeout_s=TIME_S)
            teachers.append(events(consortium, name, "teachers_started")[0]["process"])
            os.kill(teachers[-1], signal.SIGSTOP)
        labelling = subprocess.Popen(
            [
                sys.executable, "-m", "coordinator", "label", "demo", "--wait",
                "--home", str(consortium.folder / "centre"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(lambda: all(events(consortium, name, "teachers_late") for name in HOSPITALS), timeout_s=TIME_S)
        for each in teachers:
            os.kill(each, signal.SIGCONT)
        assert labelling.wait(timeout=TIME_S) == 0
    finally:
        for each in teachers:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)
        if labelling is not None:
            labelling.kill()
            labelling.wait()
    (shown,) = json.loads(consortium.coordinator("status", "--json"))["studies"]
    assert shown["state"] in ("finished", "labelled")
    for name in HOSPITALS:
        assert len(events(consortium, name, "teachers_started")) == 1
        assert not events(consortium, name, "teachers_ended")
    consortium.finish()  # the release verifies, and each hospital's audit of it holds
