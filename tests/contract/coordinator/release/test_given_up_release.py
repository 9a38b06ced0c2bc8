"""A release of a study of which a batch was given up: it verifies, says so, and cannot be made to say otherwise."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from coordinator.release.charges import (
    charges_by_seat,
    check_charges,
    check_receipts,
    confirmed,
    refused_receipts,
    uncovered,
)
from coordinator.release.evidence import collect, evidence_in, receipts
from coordinator.release.verify import verify_release
from protocols.errors import DataCorrupt
from protocols.ledger.audit_log import Entry
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.study.levels import SecureSum
from protocols.votes import NOT_ASKED
from protocols.wire.messages import StepRequest
from tests.harness.levels import SEAT_KEYS
from tests.harness.refusals import refuses
from tests.harness.released import POOL, Consortium, small_study

SIZE = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Masked sums of four hospitals: one is not in the first, another leaves before it is opened and stays away."""
    folder = tmp_path_factory.mktemp("given-up")
    level = SecureSum(units=64, colluders=1, seat_keys=())
    study = small_study(
        4,
        epsilon=20.0,
        confidentiality=level,
        keys=SEAT_KEYS,
        view="histogram",
        account="gaussian",
        quorum=3,
        sigma=6.0,
        sigma_threshold=None,
        threshold=None,
        mechanism="gnmax",
        batch_limit=SIZE,
    )
    gone = [lambda requests: _left_before_opening(requests) | {"hospital-3"}]
    consortium = Consortium(folder)

    def give_up(coordinator):
        assert coordinator.open_batch == 0
        coordinator.give_up(0, POOL)
        gone[0] = lambda requests: frozenset({"hospital-2"})

    labelled = consortium.label(
        study,
        absent=lambda requests: gone[0](requests),
        aggregation=SummedAggregation(),
        ballots=lambda name, ledger: SummedBallot(
            study, name, ledger=ledger, key=SEAT_KEYS[int(name[-1])], source=os.urandom
        ),
        between=give_up,
    )
    return consortium, labelled, consortium.release(labelled, folder / "release")


def _left_before_opening(requests):
    step = next(iter(requests.values()))
    late = isinstance(step, StepRequest) and step.step in ("sum_agree", "sum_open")
    return frozenset({"hospital-2"}) if late else frozenset()


def test_a_release_with_a_batch_that_was_given_up_verifies_and_says_so(made):
    _, labelled, folder = made
    checks = {check.name: check for check in verify_release(folder, None)}
    assert all(check.passed is not False for check in checks.values()), checks
    assert "batch 0 was given up: 12 queries without labels, charged as reserved" in checks["charges"].message
    stated = json.loads((folder / "privacy.json").read_text())
    assert stated["during_the_study"]["batches_reserved_and_never_released"] == [0]
    assert stated["during_the_study"]["log_entries"]["given_up"] == 1
    assert (labelled.labels[:SIZE] == NOT_ASKED).all()
    assert (labelled.labels[SIZE:] >= 0).all()
    assert stated["queries"]["not_asked"] == SIZE
    # Whoever left and never told owes no receipt: nothing was released of what it was charged for.
    assert stated["stated_by_the_coordinator"]["unproven"] == []


def test_every_seat_is_charged_for_it_in_what_is_published_at_least_as_at_home(made):
    consortium, labelled, folder = made
    evidence = evidence_in(folder)
    stated = {row["seat"]: row for row in json.loads((folder / "privacy.json").read_text())["seats"]}
    for seat, ledger in consortium.ledgers[labelled.study.name].items():
        assert evidence.charges[0].reserved[seat] > 0
        assert evidence.spent(seat) >= ledger.balance(seat).spent
        assert stated[seat]["ledger"]["charged"] == evidence.spent(seat)
        # A receipt of a seat that never heard of the batch is no lie about it.
        assert stated[seat]["ledger"]["difference"] in (0, None)
    away = consortium.ledgers[labelled.study.name]["hospital-3"]
    assert evidence.spent("hospital-3") > away.balance("hospital-3").spent > 0


def open_evidence(made):
    consortium, labelled, _ = made
    evidence = collect(labelled.ledger, study=labelled.study.digest)
    return labelled.study, labelled.labels, evidence, receipts(evidence, authority=consortium.authority)


def test_without_the_log_saying_so_a_batch_in_the_middle_may_not_be_open(made):
    study, labels, evidence, _ = open_evidence(made)
    check_charges(study, labels, evidence)
    silent = replace(evidence, entries=tuple(each for each in evidence.entries if each.event != "given_up"))
    with pytest.raises(DataCorrupt, match="batch 0 is neither settled nor given up, but later ones were asked"):
        check_charges(study, labels, silent)


def test_a_label_of_it_is_refused_and_so_is_its_settlement(made):
    study, labels, evidence, _ = open_evidence(made)
    with pytest.raises(DataCorrupt, match="labels are released for queries that no settled batch asked"):
        check_charges(study, np.where(np.arange(len(labels)) == 3, 0, labels), evidence)
    first = replace(evidence.charges[0], settled=evidence.charges[0].reserved)
    both = replace(evidence, charges=(first, *evidence.charges[1:]))
    with pytest.raises(DataCorrupt, match="batch 0 is settled, but the log says that it was given up"):
        check_charges(study, labels, both)


def test_a_charge_of_it_that_is_left_out_is_refused(made):
    study, labels, evidence, _ = open_evidence(made)
    first = evidence.charges[0]
    less = replace(first, reserved={seat: amount // 2 for seat, amount in first.reserved.items()})
    with refuses(DataCorrupt, "batch 0"):
        check_charges(study, labels, replace(evidence, charges=(less, *evidence.charges[1:])))


def test_a_party_that_was_told_another_outcome_of_it_is_found(made):
    study, labels, evidence, opened = open_evidence(made)
    check_receipts(study, labels, evidence, opened)
    at = next(position for position, each in enumerate(opened) if each.number == 0)
    lie = replace(opened[at].outcome, answered=np.ones(SIZE, dtype=bool))
    with pytest.raises(DataCorrupt, match="the party was told an outcome that differs from the released labels"):
        check_receipts(study, labels, evidence, [*opened[:at], replace(opened[at], outcome=lie), *opened[at + 1 :]])


def test_a_receipt_of_it_below_what_it_cost_is_found(made):
    study, labels, evidence, opened = open_evidence(made)
    at = next(position for position, each in enumerate(opened) if each.number == 0)
    low = replace(opened[at], spent=evidence.charges[0].reserved[opened[at].seat] - 1)
    lied = [*opened[:at], low, *opened[at + 1 :]]
    check_receipts(study, labels, evidence, lied)
    assert "less than the" in refused_receipts(study, evidence, lied)[opened[at].seat][0]
    assert len(confirmed(study, evidence, lied)) == len(opened) - 1


def test_receipts_tell_who_was_charged_for_it(made):
    study, _, evidence, opened = open_evidence(made)
    assert {each.seat for each in opened if each.number == 0} == {"hospital-0", "hospital-1"}
    assert uncovered(study, evidence, opened) == {}
    assert {seat: row["difference"] for seat, row in charges_by_seat(study, evidence, opened).items()} == {
        "hospital-0": 0,
        "hospital-1": 0,
        "hospital-2": None,
        "hospital-3": 0,
    }


@pytest.mark.parametrize("number", [None, "0", -1, 10**9, True])
def test_an_entry_that_names_no_batch_gives_nothing_up(made, number):
    _, _, evidence, _ = open_evidence(made)
    fields = {} if number is None else {"batch": number}
    entries = (*evidence.entries, Entry(len(evidence.entries) + 1, 0, "given_up", fields))
    assert replace(evidence, entries=entries).given_up == {0}


def test_the_batch_that_was_given_up_may_be_the_last_that_was_asked(made):
    study, labels, evidence, opened = open_evidence(made)
    last, nothing = replace(evidence, charges=evidence.charges[:1]), np.full(len(labels), NOT_ASKED)
    check_charges(study, nothing, last)
    check_receipts(study, nothing, last, [each for each in opened if each.number == 0])
