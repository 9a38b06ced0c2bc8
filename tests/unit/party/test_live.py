"""What the node's page says of its state, in a sentence and in tables."""

import datetime
from dataclasses import replace

import pytest

from party.budget.policy import Approval
from party.budget.spending import Exactness, bounded
from party.lifetime import LifetimeCap, LifetimeUse
from party.live import Happened, LastAudit, NodeState, Recent, SeatState, needs_of, node_page, top_line

NOW = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
SEAT = SeatState("heart", "north", 34, 58, 1.25, 2.5, 8.0, 1e-5, "record", 1, "2031-12-31", once=False)
STATE = NodeState(
    party="north",
    consortium="test",
    coordinator="centre",
    address="centre.example.org:7443",
    connected=True,
    since=NOW,
    certificate_days=20.0,
    troubles=(),
    seats=(SEAT,),
    lifetime=(LifetimeUse("ward", "record", LifetimeCap(10.0, 1e-5), float("nan"), reserved=10**9),),
    lifetime_bound=Exactness.EXACT,
    approvals=(Approval(b"\1" * 32, "ward", "home", "/srv", "north", "heart", withdrawn=False, told_apart=True),),
    approved_ns={"01" * 32: 1_893_550_000 * 10**9},
    happened=(
        Happened(1_893_553_445 * 10**9, "heart", "refused", None, "other_pool"),
        Happened(1_893_553_444 * 10**9, "heart", "reserved", 20, ""),
    ),
    last_audit=LastAudit(1_893_553_000.0, True, 1),
    now=NOW,
)


def test_a_node_at_work_is_one_line():
    assert top_line(STATE) == "Connected; heart: 34 of 58 answers left; nothing needs you."
    assert 'class="verdict good"' in node_page(STATE)


def test_a_study_in_which_records_vote_is_asked_once():
    once = replace(SEAT, once=True, left=1, total=1)
    assert "heart: not asked yet, and then once" in top_line(replace(STATE, seats=(once,)))
    assert "heart: asked once, and never again" in top_line(replace(STATE, seats=(replace(once, left=0),)))
    for seat, said in ((once, "asked once"), (SEAT, "goes on")):
        shown = top_line(replace(STATE, seats=(replace(seat, missed=True),)))
        assert f"heart: {said}, without this hospital" in shown
    recent = Recent()
    recent("asked_without", {"study": "heart", "seat": "north", "code": "asked_without", "reason": "it was"})
    ((about, said),) = recent.troubles.items()
    assert about == ("asked_without", "heart")
    assert "conclave-party withdraw" in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seats": ()}, "conclave-party data check STUDY.toml"),
        ({"certificate_days": 1.5}, "the certificate ends in 1.5 days"),
        ({"last_audit": LastAudit(0.0, False, 1)}, "conclave-party verify"),
        ({"troubles": ("teachers failed: why",)}, "teachers failed: why"),
        (
            {"connected": False, "since": NOW - datetime.timedelta(minutes=5)},
            "no connection to centre.example.org:7443 since 2030-01-02 02:59:05 UTC; run: conclave-party doctor",
        ),
    ],
)
def test_what_needs_a_person_comes_first_with_its_command(changed, said):
    state = replace(STATE, **changed)
    (need,) = needs_of(state)
    assert said in need
    assert top_line(state).endswith("one thing needs you.")
    page = node_page(state, paste=lambda text: text.replace("conclave-party", "conclave-party HERE"))
    assert said.replace("conclave-party", "conclave-party HERE") in page
    assert 'class="verdict warn"' in page
    assert page.index("Needs you:") < page.index("<h2>")


def test_what_cannot_be_proved_is_shown_as_its_bound_and_in_no_figure_of_answers():
    seat = replace(SEAT, bound=Exactness.AT_MOST, left=0, used=2.50004, reserved=2.50004)
    doubted = replace(STATE, seats=(seat,), lifetime_bound=Exactness.AT_LEAST, troubles=("ledger_rolled_back: why",))
    page = node_page(doubted)
    assert "at most 2.501" in page
    assert "not known: at least " in page
    assert "answers left;" not in page
    assert 'class="verdict warn"' in page


@pytest.mark.parametrize("value", [1.23454, 1.23456, 9.99951, 0.000123449, 123456.0])
def test_a_bound_is_rounded_such_that_it_stays_one(value):
    most, least = (float(bounded(value, each).split()[-1]) for each in (Exactness.AT_MOST, Exactness.AT_LEAST))
    assert least <= value <= most
    assert value <= float(bounded(value, Exactness.EXACT)) == most


def test_a_line_that_was_lost_a_moment_ago_needs_nobody():
    state = replace(STATE, connected=False, since=NOW - datetime.timedelta(seconds=5))
    assert needs_of(state) == []
    assert top_line(state).startswith("Not connected since 2030-01-02 03:04:00 UTC; heart")


def test_budgets_requests_refusals_approvals_and_the_last_audit_are_on_the_page():
    page = node_page(STATE)
    for said in (
        "34 of 58", "1.25", "2.5", ">8<", "record", "2031-12-31",  # the seat
        "ward", ">10<",  # the lifetime cap
        "answered; reserved in full", "refused (other_pool): ", "2030-01-02 03:04:05 UTC",
        "0101010101010101", "stands", "everything holds (1 checked)", "20.0 days left",
    ):  # fmt: skip
        assert said in page, said


def test_the_page_runs_no_script_loads_nothing_and_escapes_what_others_wrote():
    page = node_page(replace(STATE, consortium="<script>alert(1)</script>", troubles=('"><img src=x>',)))
    assert "<script" not in page
    assert "<img" not in page
    assert "default-src 'none'" in page
    assert "refresh" not in page


def test_a_trouble_is_shown_until_the_event_that_ends_it_for_its_study():
    recent = Recent(clock=iter(range(100)).__next__)
    recent("connected", {})
    recent("teachers_failed", {"study": "heart", "reason": "no file"})
    recent("teachers_failed", {"study": "lung", "reason": "no file"})
    recent("teachers_ready", {"study": "lung"})
    assert recent.troubles == {("teachers_failed", "heart"): "teachers failed: no file"}
    recent("disconnected", {"code": "UNAVAILABLE"})
    stood_until = recent.since_s
    recent("goodbye", {"code": "going_away"})
    assert (recent.stands, recent.since_s) == (False, stood_until)
