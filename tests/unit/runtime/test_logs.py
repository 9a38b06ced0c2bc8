import io
import json

import pytest

from runtime.logs import FIELDS, Log


def lines(out):
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_fields_that_are_not_allowed_are_left_out_and_counted():
    out = io.StringIO()
    Log(out)("refusal", {"party": "a", "votes": "1,0", "token": "t", "labels": 3, "code": "absent"})
    (line,) = lines(out)
    assert set(line) == {"time", "event", "party", "code", "left_out"}
    assert line["left_out"] == 3


@pytest.mark.parametrize("secret", ["votes", "vote", "labels", "label", "token", "key", "request", "inputs", "seed"])
def test_nothing_secret_is_on_the_list(secret):
    assert secret not in FIELDS


def test_a_field_of_another_type_is_left_out():
    out = io.StringIO()
    Log(out)("connected", {"port": "1; rm", "party": 7})
    (line,) = lines(out)
    assert line["left_out"] == 2


def test_one_event_is_one_line_whatever_the_other_side_sends():
    out = io.StringIO()
    Log(out)("refused", {"reason": "a\nb\x1b[2J" + "x" * 10_000})
    (line,) = lines(out)
    assert line["reason"].startswith("a?b?[2J")
    assert len(line["reason"]) == 500


def test_events_are_counted_for_the_metrics():
    log = Log(io.StringIO())
    for _ in range(3):
        log("connected", {})
    assert log.counts == {"connected": 3}


def test_at_a_terminal_a_charge_is_one_plain_sentence_and_other_events_are_their_fields():
    out = io.StringIO()
    log = Log(out, plain=True)
    charge = {"study": "heart", "seat": "north", "batch": 3, "queries": 20, "answers_left": 34}
    log("answered", charge | {"epsilon_used": 1.23456, "epsilon_cap": 8.0, "votes": "1,0"})
    log("goodbye", {"code": "another_node", "times": 2})
    answered, goodbye = out.getvalue().splitlines()
    assert answered.endswith(
        "Z heart: north answered batch 3 of 20 queries, reserved in full; epsilon 1.235 of 8 used, 34 answers left"
    )
    assert goodbye.endswith("Z goodbye code=another_node times=2")
