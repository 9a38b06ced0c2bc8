"""What a relay knows of budgets: never less than a party spent, and the party's own figure once it settled."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands.group import run_command
from coordinator.connection import relaying
from coordinator.connection.relaying import count_receipt, count_request, most_spent
from coordinator.labelling.study_creation import create_study
from coordinator.status import read_status, status_metrics, study_status
from coordinator.store.store import Store, ledger_path
from protocols.ledger.ledger import Ledger
from protocols.study.file import write_study
from protocols.study.queries import QueryBatch
from protocols.wire.messages import VoteRequest
from runtime.loopback import exposition
from tests.harness.amounts import nano
from tests.harness.askers import asked_study
from tests.harness.operators import SETTINGS, make_home
from tests.harness.refusals import refused_for
from tests.harness.studies import NOW

STUDY = asked_study()
SEAT = "hospital-1"
AT = STUDY.seats[SEAT]


def request(number, *ids):
    return VoteRequest(STUDY.digest, b"run", QueryBatch(number, np.array(ids), np.zeros((len(ids), 0), np.float32)))


def cost(asked, answered):
    return int(STUDY.budgets.amount(asked, answered)[AT])


def receipt(ledger, number, spent, *, entries=1, before_tick=0, seat=SEAT):
    count_receipt(ledger, STUDY, seat, number, spent, entries=entries, before_tick=before_tick)


def spent(ledger):
    return int(most_spent(ledger, STUDY)[0][AT])


@pytest.fixture
def ledger():
    with Ledger(":memory:") as made:
        yield made


def test_a_batch_counts_at_its_worst_before_it_is_answered_and_once(ledger):
    assert spent(ledger) == 0
    for _ in range(2):
        count_request(ledger, STUDY, SEAT, request(0, 0, 1, 2))
    assert spent(ledger) == cost(3, 3)
    assert most_spent(ledger, STUDY)[1:] == (3, 1)
    assert most_spent(ledger, STUDY)[0].tolist() == [0, cost(3, 3), 0]


def test_a_receipt_takes_the_place_of_its_batch_and_of_what_was_asked_before_its_outcome(ledger):
    count_request(ledger, STUDY, SEAT, request(0, 0, 1, 2))
    second = count_request(ledger, STUDY, SEAT, request(1, 3, 4))
    receipt(ledger, 0, cost(3, 1), entries=2, before_tick=second)
    assert spent(ledger) == cost(3, 1) + cost(2, 2)
    third = count_request(ledger, STUDY, SEAT, request(2, 5))
    receipt(ledger, 2, cost(3, 1) + cost(2, 0) + cost(1, 0), entries=4, before_tick=third + 1)
    assert spent(ledger) == cost(3, 1) + cost(2, 0) + cost(1, 0)


def test_a_receipt_that_was_made_before_a_batch_came_leaves_that_batch(ledger):
    first = count_request(ledger, STUDY, SEAT, request(9, 0, 1, 2))
    count_request(ledger, STUDY, SEAT, request(5, 3, 4, 5))
    receipt(ledger, 9, cost(3, 0), before_tick=first + 1)
    assert spent(ledger) == cost(3, 0) + cost(3, 3)


def test_an_older_receipt_that_comes_late_lowers_nothing(ledger):
    count_request(ledger, STUDY, SEAT, request(0, 0, 1, 2))
    count_request(ledger, STUDY, SEAT, request(1, 3, 4, 5))
    receipt(ledger, 1, 2 * cost(3, 1), entries=4, before_tick=2)
    receipt(ledger, 0, cost(3, 1), entries=3, before_tick=2)
    assert spent(ledger) == 2 * cost(3, 1)


def test_a_batch_asked_again_after_the_outcome_was_sent_is_not_held_by_its_receipt(ledger):
    count_request(ledger, STUDY, SEAT, request(5, 3))
    second = count_request(ledger, STUDY, SEAT, request(9, 0, 1, 2))
    count_request(ledger, STUDY, SEAT, request(5, 3, 4, 5))
    receipt(ledger, 9, cost(3, 0), before_tick=second + 1)
    assert spent(ledger) == cost(3, 0) + cost(3, 3)


def test_batches_that_are_counted_together_go_together(ledger):
    for number in range(relaying._MOST_OPEN + 1):
        last = count_request(ledger, STUDY, SEAT, request(number, number % STUDY.query_limit))
    receipt(ledger, last, 1, before_tick=last)
    assert spent(ledger) == STUDY.budgets.cap[AT]
    receipt(ledger, last, 1, before_tick=last + 1)
    assert spent(ledger) == 1


def test_what_a_party_refuses_before_it_charges_counts_nothing(ledger):
    with refused_for("batch_too_large"):
        count_request(ledger, STUDY, SEAT, request(0, *range(STUDY.batch_limit + 1)))
    with refused_for("query_limit"):
        count_request(ledger, STUDY, SEAT, request(0, STUDY.query_limit))
    assert spent(ledger) == 0


def test_numbers_without_end_fill_no_ledger_and_pass_no_cap(ledger):
    for number in range(relaying._MOST_OPEN + 20):
        count_request(ledger, STUDY, SEAT, request(number, number % STUDY.query_limit))
    assert spent(ledger) == STUDY.budgets.cap[AT]
    assert len(ledger.noted(STUDY.digest, "relayed_standing " + SEAT)) < 4000


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.booleans(), st.booleans()), max_size=6))
def test_it_is_never_below_what_the_party_spent(batches):
    """A party that answers or was away, and is told the outcome or not."""
    with Ledger(":memory:") as relay, Ledger(":memory:") as own:
        own.open_accounts(nano({SEAT: 10**15}))
        asked = 0
        for number, (size, answered, there, told) in enumerate(batches):
            ids = range(asked, asked + size)
            asked += size
            if asked > STUDY.query_limit:
                break
            tick = count_request(relay, STUDY, SEAT, request(number, *ids))
            if there:
                own.reserve(number, bytes([number]) * 32, {SEAT: cost(size, size)}, b"", queries=list(ids), limit=2000)
            assert relaying.relayed_seat(relay, STUDY, SEAT).at_most >= own.balance(SEAT).spent
            if there and told:
                own.settle(number, bytes([number]) * 32, {SEAT: cost(size, min(answered, size))})
                receipt(relay, number, own.balance(SEAT).spent, entries=own.log.head().count, before_tick=tick + 1)
                assert relaying.relayed_seat(relay, STUDY, SEAT).at_most == own.balance(SEAT).spent


@pytest.fixture
def home(tmp_path):
    made = make_home(tmp_path)
    (tmp_path / "study.toml").write_text(write_study(STUDY))
    with Store(made) as store:
        create_study(store, SETTINGS, file=tmp_path / "study.toml", pool_file=None, today=NOW.date())
    return made


def test_status_shows_what_passed_and_whose_ledger_has_the_rest(home, capsys):
    with Store(home) as store:
        fresh = study_status(store, "heart", set())
        assert (fresh["asked_by"], fresh["state"], fresh["answered"]) == ("asker", "relayed", None)
        assert [seat["epsilon_used"] for seat in fresh["seats"]] == [0.0] * 3
        with Ledger(ledger_path(home, "heart")) as ledger:
            for seat in ("hospital-0", "hospital-1"):
                count_request(ledger, STUDY, seat, request(0, *range(8)))
            receipt(ledger, 0, cost(8, 8) - 1, seat="hospital-0")
        shown = study_status(store, "heart", set())
        text = exposition(status_metrics(read_status(store, now_s=0)), {})
    assert (shown["asked"], shown["batches"]) == (8, 1)
    used = [seat["epsilon_used"] for seat in shown["seats"]]
    assert 0 < used[0] < used[1]
    assert used[2] == 0
    assert shown["seats"][1]["answers_left"] < fresh["seats"][1]["answers_left"]
    assert 'conclave_study_asked{study="heart"} 8' in text
    assert "conclave_study_answered{" not in text
    assert run_command(["status", "--home", str(home.folder)]) == 0
    out = capsys.readouterr().out
    assert "study heart: relayed; 8 of 20 queries asked in 1 batch, asked by asker; quorum 2" in out
    assert (
        "asker's ledger holds these budgets: they are shown here at their worst case, until a receipt says less" in out
    )
    assert run_command(["status", "--json", "--home", str(home.folder)]) == 0
    assert json.loads(capsys.readouterr().out)["studies"][0]["asked_by"] == "asker"
