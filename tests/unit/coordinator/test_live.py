"""The operator's page: whom a batch waits for, and the command that comes next."""

import re

import pytest

from coordinator.serving import _Door
from coordinator.status import blocking, next_commands, operator_page
from protocols.wire.enrolment import Enrol, Enrolled

SEAT = {
    "seat": "north", "display_name": None, "connected": False, "ready": False, "asked": True, "withdrawn": False,
    "answers_left": 7, "epsilon_used": 0.5, "epsilon_guaranteed": 2.0,
    "delta": 1e-5, "left_out": 3,
}  # fmt: skip
STUDY = {
    "study": "heart", "digest": "00", "state": "running", "message": "asking; not connected: north", "asked_by": None,
    "batches": 2, "asked": 20, "answered": 9, "pool": 58, "quorum": 1, "once": False, "given_up": [], "seats": [SEAT],
}  # fmt: skip
STATUS = {
    "serving": {}, "silent": [], "pending_requests": [], "open_invitations": [], "studies": [STUDY],
    "parties": [{"party": "north", "connected": False, "revoked": None, "serial": "1", "days_left": 20.0}],
    "connected": [],
}  # fmt: skip


def page(**changed):
    return operator_page(
        STATUS | changed, consortium="test", trained={}, now_s=1_893_553_445.0, paste=lambda text: f"[{text}]"
    )


def commands(state, *, trained=False, **changed):
    studies = [STUDY | {"state": state}]
    return next_commands(STATUS | {"studies": studies} | changed, {"heart": trained})


def test_the_batch_now_and_whom_it_waits_for_come_first():
    shown = page()
    says = "Serving; 0 of 1 hospital connected; heart: asking; not connected: north; 1 thing to do."
    assert says in shown
    assert 'class="verdict warn"' in shown
    assert "[heart: not connected: north; have its node started: conclave-party run]" in shown
    assert "20 of 58 queries asked in 2 batches, 9 answered" in shown
    assert "quorum 1 of 1 seat. Asking; not connected: north.</p>" in shown
    assert '<td data-name="revoked">no</td>' in shown
    assert "<script" not in shown


@pytest.mark.parametrize(("quorum", "said"), [(3, "not connected"), (2, "continues without the votes of")])
def test_one_of_three_that_is_down_is_never_green(quorum, said):
    up = SEAT | {"connected": True, "ready": True}
    seats = [up | {"seat": "north"}, up | {"seat": "east"}, SEAT | {"seat": "west", "display_name": "Klinik W"}]
    shown = page(studies=[STUDY | {"seats": seats, "quorum": quorum, "message": ""}])
    assert 'class="verdict warn"' in shown
    assert f"{said}{': ' * (quorum == 3)}{' ' * (quorum == 2)}Klinik W (west); have its node started" in shown
    assert 'class="verdict good"' in page(studies=[STUDY | {"seats": [up]}])


def test_who_blocks_a_study_is_named_with_what_to_do_and_of_250_only_the_first():
    seats = [SEAT | {"seat": f"h{n}", "asked": False, "connected": n > 200, "ready": n > 240} for n in range(250)]
    seats[0]["seat"] = "north"
    created = STUDY | {"state": "created", "seats": seats, "quorum": 200, "once": True}
    away, unready, once = blocking(created)
    assert "north, h1" in away
    assert "and 193 more" in away
    assert "h201" in unready
    assert "label heart --without SEAT" in once
    shown = page(studies=[created])
    assert 'class="verdict warn"' in shown
    strip = shown[shown.index('<ol class="strip"') : shown.index("</ol>")]
    assert [int(each) for each in re.findall(r"(\d+) of 250", strip)] == [1, 49, 9, 0]
    folded = page(studies=[created], parties=[STATUS["parties"][0] | {"party": f"h{n}"} for n in range(250)])
    opened = re.sub(r"<details.*?</details>", "", folded, flags=re.DOTALL)
    assert opened.count("h240") == 0 < folded.count("h240")
    # Beside a quorum, batches go on; a study that ended, or a hospital that withdrew, blocks nothing.
    going = [each | {"connected": True, "ready": True} for each in seats[:-1]] + [seats[-1] | {"connected": False}]
    assert "continues" in blocking(created | {"once": False, "state": "running", "seats": going})[0]
    assert len(blocking(created | {"state": "running", "seats": going})) == 2
    assert blocking(created | {"state": "finished"}) == []
    assert blocking(created | {"seats": [each | {"withdrawn": True} for each in seats]}) == []


@pytest.mark.parametrize(
    ("state", "trained", "command"),
    [
        ("created", False, "conclave-coordinator label heart"),
        ("stopped", False, "conclave-coordinator resume heart"),
        ("failed", False, "conclave-coordinator resume heart"),
        ("finished", False, "conclave-coordinator train heart --student KIND"),
        ("finished", True, "conclave-coordinator release heart"),
    ],
)
def test_the_next_command_follows_from_where_a_study_stands(state, trained, command):
    (said,) = commands(state, trained=trained)
    assert command in said


@pytest.mark.parametrize("state", ["running", "waiting", "relayed"])
def test_a_study_that_runs_by_itself_has_no_next_command(state):
    assert commands(state) == []


def test_before_there_is_a_study_hospitals_are_invited_approved_and_a_study_is_created():
    nobody = {"parties": [], "studies": []}
    assert next_commands(STATUS | nobody, {}) == ["conclave-coordinator invite HOSPITAL"]
    asking = [{"party": "north", "asked_s": 1.0}]
    (said,) = next_commands(STATUS | nobody | {"pending_requests": asking, "studies": [STUDY]}, {})
    assert said.endswith("conclave-coordinator approve north")
    assert next_commands(STATUS | {"studies": []}, {}) == ["conclave-coordinator study create STUDY.toml --pool POOL"]


def test_what_an_operator_has_to_look_at_is_named_before_the_tables():
    soon = [STATUS["parties"][0] | {"days_left": 1.25}]
    shown = page(
        parties=soon, silent=[{"party": "north", "since_s": 0.0, "times": 4}], studies=[STUDY | {"given_up": [3]}]
    )
    first = shown[: shown.index("<h2>")]
    assert "certificate ends in 1.2 days" in first
    assert "has not answered in time 4 times" in first
    assert "given up without labels: batch 3" in first
    assert "4 things to do" in first


def test_who_asks_to_be_let_in_is_logged_once_with_what_the_operator_does_next():
    answers = iter([Enrolled(b"", "pending", ""), Enrolled(b"", "pending", ""), Enrolled(b"", "bad_token", "")])
    authority = type("Authority", (), {"enrol": lambda _, message: next(answers)})()
    events = []
    door = _Door(authority, lambda event, fields: events.append((event, fields)))
    assert [door.enrol(Enrol(party, b"t", b"r")).code for party in ("north", "north", "nobody")] == [
        "pending", "pending", "bad_token",
    ]  # fmt: skip
    ((event, fields),) = events
    assert event == "asks_to_be_let_in"
    assert "conclave-coordinator approve north" in fields["reason"]
