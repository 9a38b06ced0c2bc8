"""A study in which records vote: one batch, charged once, the same sums at every level that carries them."""

from dataclasses import fields, replace

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.labelling.replay import replay
from protocols.labelling.stored_votes import RecordSums
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation, unlike_others
from protocols.levels.simulated import drawn_noise, simulated_ballot, simulated_level
from protocols.noise import simulated
from protocols.study.file import read_study, write_study
from protocols.study.levels import Clear, GuardedLevel, HiddenQueries
from protocols.study.queries import QueryBatch
from protocols.sums.blocks import Blocks, Constant
from protocols.wire.messages import Refusal, VoteReply, VoteRequest
from simulations import datasets
from simulations.commands.group import run_command
from simulations.datasets.dataset import DatasetRequest
from simulations.stages.record_votes import contributions, live_record_votes, soft_pool_labels
from tests.harness.record_votes import (
    GRADED,
    HOLDINGS,
    KINDS,
    LEVELS,
    NAMES,
    QUERIES,
    RNG,
    UNITS,
    labelling_of,
    parties_of,
    simulated_labelling,
    study_of,
)
from tests.harness.refusals import refuses
from tests.harness.studies import make_study


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("unit", ["record", "patient"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_released_is_the_sum_and_the_noise_and_the_whole_study_is_one_charge(level, unit, kind) -> None:
    study = study_of(level, unit=unit, queries=KINDS[kind])
    sums = contributions(study, KINDS[kind], HOLDINGS)
    rows = KINDS[kind].rows
    labelling = live_record_votes(study, sums, seed=3)
    noise = drawn_noise(study, seed=3)(np.ones(3, dtype=bool))
    expected = study.released(np.sum(sums, axis=0) / study.units, noise, predictions=None)[1]
    np.testing.assert_array_equal(labelling.cells, expected)
    np.testing.assert_array_equal(labelling.labels, expected.argmax(axis=1))
    assert labelling.batches == [(rows, rows)]
    assert labelling.stop.reason == "pool_exhausted"
    np.testing.assert_array_equal(labelling.spent, study.budgets.amount(rows, rows))
    np.testing.assert_array_equal(labelling.spent, study.budgets.amount(1, 1))
    assert (labelling.spent <= study.budgets.cap).all()


@pytest.mark.parametrize("level", ["secure_sum", "two_server"])
@pytest.mark.parametrize("unit", ["record", "patient"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_level_releases_what_clear_does_under_the_same_total_noise(level, unit, kind) -> None:
    study = study_of(level, unit=unit, queries=KINDS[kind])
    sums = contributions(study, KINDS[kind], HOLDINGS)
    assert (min(each.min() for each in sums) < 0) == (kind == "graded")
    total = drawn_noise(study, seed=3)(np.ones(3, dtype=bool))
    in_clear = replace(study, confidentiality=Clear(units=UNITS))
    parties = parties_of(in_clear, sums, [Ledger(":memory:") for _ in sums])
    transport = InProcessTransport({name: party.handle for name, party in parties.items()})
    expected = labelling_of(in_clear, ClearAggregation(total), transport, Ledger(":memory:"))
    got = live_record_votes(study, sums, seed=3)
    np.testing.assert_array_equal(got.cells, expected.cells)
    np.testing.assert_array_equal(got.labels, expected.labels)
    assert got.spent.tolist() == expected.spent.tolist()


def test_two_servers_refuse_a_study_whose_shares_they_cannot_hold_and_records_do_not_ask_in_secret() -> None:
    study = study_of("two_server")
    with refuses(InvalidInput, 1362, "MiB", 240):
        study.voting(queries=2_000_000, partitions=())
    with refuses(InvalidInput, 2**30):
        study.voting(population=2**22)
    given = {each.name: getattr(study.confidentiality, each.name) for each in fields(GuardedLevel)}
    secret = HiddenQueries(**given, querier="clinic", querier_key="", input_bound=1.0)
    with refuses(InvalidInput, "study"):
        replace(study, confidentiality=secret)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rule", ["uniform", "proportional", "exhaustive"])
def test_the_noise_is_the_least_that_every_budget_affords(level, rule) -> None:
    study = study_of(level, rule=rule)
    assert (study.budgets.affordable(np.zeros(3, dtype=np.int64), limit=1) == 1).all()
    less = study.voting(sigma=study.votes.sigma * (1 - 1e-8))
    assert (less.budgets.affordable(np.zeros(3, dtype=np.int64), limit=1) == 0).any()


def test_exhaustive_weights_spend_every_budget_whole_and_uniform_ones_the_smallest() -> None:
    for rule, spent in (("exhaustive", [1, 1, 1]), ("uniform", [1, 0.5, 1])):
        study = study_of(rule=rule)
        share = study.budgets.amount(1, 1) / study.budgets.cap
        assert share == pytest.approx(spent, rel=0.01 if rule == "exhaustive" else 0.5)
        assert (share <= 1).all()
    larger = study_of(rule="exhaustive").weights
    assert larger[1] > larger[0] == larger[2]


def test_a_patient_costs_as_much_as_a_record_and_weighs_no_more() -> None:
    by_record, by_patient = study_of(unit="record"), study_of(unit="patient")
    np.testing.assert_array_equal(by_record.budgets.amount(1, 1), by_patient.budgets.amount(1, 1))
    records, patients = (contributions(each, QUERIES, HOLDINGS)[0].sum() for each in (by_record, by_patient))
    assert 0.5 * records < patients < records


def asked(study, voter, *, queries=16, ledger, ballot=None):
    party = Party("a", study=study, ledger=ledger, voter=voter, coins_from=None, ballot=ballot)
    batch = QueryBatch(0, np.arange(queries), np.zeros((queries, 1), np.float32))
    return party.handle(VoteRequest(study.digest, bytes(16), batch))


def too_much_in_all(study):
    """No cell above what all units together may put in it, and all of them as full as that."""
    records = study.votes
    weight_units = round(study.roster[0].weight * study.units)
    most = records.population * weight_units
    return np.full((16, 2), most)


BAD_SUMS = {
    "classes": np.zeros((16, 3), np.int64),
    "queries": np.zeros((15, 2), np.int64),
    "floats": np.zeros((16, 2)),
    "not a number": np.full((16, 2), np.nan),
    "negative": np.full((16, 2), -1),
    "more than all units in a cell": np.full((16, 2), 2**40),
    "more than all units in all": None,
    "part of the queries": np.zeros((15, 2), np.int64),
}


@pytest.mark.parametrize("level", ["clear", "two_server"])
@pytest.mark.parametrize("bad", BAD_SUMS)
def test_a_sum_that_cannot_be_one_is_refused_before_anything_is_charged(bad, level) -> None:
    study = study_of(level)
    given = too_much_in_all(study) if BAD_SUMS[bad] is None else BAD_SUMS[bad]
    with Ledger(":memory:") as ledger:
        ballot = simulated_ballot(study, 0, ledger=ledger, seed=1)
        queries = 15 if bad == "part of the queries" else 16
        reply = asked(study, lambda batch: given, queries=queries, ledger=ledger, ballot=ballot)
        assert isinstance(reply, Refusal)
        assert reply.code == "could_not_vote"
        assert ledger.balance("a").spent == 0


@pytest.mark.parametrize("level", LEVELS)
def test_a_party_whose_sum_cannot_be_one_is_left_out_at_every_level_and_pays_nothing(level) -> None:
    study = study_of(level)
    sums = contributions(study, QUERIES, HOLDINGS)
    sums[1] = -sums[1]
    ledgers = [Ledger(":memory:") for _ in sums]
    parties = parties_of(
        study, sums, ledgers, ballot=lambda at, ledger: simulated_ballot(study, at, ledger=ledger, seed=1)
    )
    got = simulated_labelling(
        study, InProcessTransport({name: party.handle for name, party in parties.items()}), seed=1
    )
    assert got.stop.reason == "quorum_lost"
    assert got.refusals == {"b": "could_not_vote"}
    assert got.cells is None
    assert [each.balance(name).spent > 0 for each, name in zip(ledgers, NAMES, strict=True)] == [True, False, True]


def sums_of_nobody(sums, weight, kind):
    """Sums that no 30 units have: of more of them; of part of a vote; of one cell twice; of a record of two classes;
    beyond the norm alone."""
    if kind == "cells":
        step, odd, alone, both = int(np.gcd.reduce(sums.ravel())), sums.copy(), np.zeros_like(sums), sums.copy()
        odd[0, 0] += 1
        alone[0, 0] = sums.sum() + step
        at = np.argmax(both[:, 0])
        both[at] += (-step, step)
        return [2 * sums, odd, alone, both]
    beyond, long = np.zeros_like(sums), np.zeros_like(sums)
    beyond[0, 0], long[:2, 0] = 31 * weight, (22 * weight, -22 * weight)
    return [beyond, long]


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_sends_in_the_clear_what_the_units_that_it_declared_could_not(kind, tmp_path) -> None:
    study = study_of("clear", queries=KINDS[kind])
    sums = contributions(study, KINDS[kind], HOLDINGS)
    declared = [replace(seat, population=30 if seat.party == "b" else None) for seat in study.roster]
    study = replace(study, roster=tuple(declared))
    (path := tmp_path / "study.toml").write_text(write_study(study))
    assert read_study(path) == study
    assert len({study.digest, read_study(path).digest, replace(study, name="other").digest}) == 2
    ids = np.arange(study.votes.queries)
    for seat, each in zip(NAMES, sums, strict=True):
        study.votes.check_cast(study, seat, each, ids)
    for bad in sums_of_nobody(sums[1], round(study.roster[1].weight * study.units), kind):
        with pytest.raises(InvalidInput):
            study.votes.check_cast(study, "b", bad, ids)
    with refuses(InvalidInput, "population"):
        replace(study, roster=(replace(study.roster[0], population=0), *study.roster[1:]))


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_clear_the_coordinator_keeps_how_far_each_sum_stands_apart(kind) -> None:
    study = study_of("clear", queries=KINDS[kind])
    declared = [replace(seat, population=len(held[0])) for seat, held in zip(study.roster, HOLDINGS, strict=True)]
    study, sums = replace(study, roster=tuple(declared)), contributions(study, KINDS[kind], HOLDINGS)
    inputs, labels, units = HOLDINGS[0]
    made_up = (np.repeat(inputs[:1], len(inputs), axis=0), np.full_like(labels, labels[0]), units)
    for sent in (sums, [contributions(study, KINDS[kind], [made_up, *HOLDINGS[1:]])[0], *sums[1:]]):
        with Ledger(":memory:") as ledger:
            parties = parties_of(study, sent, [Ledger(":memory:") for _ in sent])
            transport = InProcessTransport({name: party.handle for name, party in parties.items()})
            labelling_of(study, ClearAggregation(simulated(np.random.default_rng(1))), transport, ledger)
            found = unlike_others(study, ledger)
        if sent is sums:
            assert max(found.values()) < 1.7
        else:
            assert next(iter(found)) == "a"
            assert found["a"] > 2.5


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_party_that_is_absent_pays_nothing_and_the_sum_is_of_the_others(level, kind) -> None:
    study = study_of(level, quorum=2, colluders=0, queries=KINDS[kind])
    sums = contributions(study, KINDS[kind], HOLDINGS)
    parties = parties_of(
        study,
        sums,
        [Ledger(":memory:") for _ in sums],
        ballot=lambda at, ledger: simulated_ballot(study, at, ledger=ledger, seed=1),
    )
    transport = InProcessTransport(
        {name: party.handle for name, party in parties.items()}, absent=lambda _: frozenset({"b"})
    )
    got = simulated_labelling(study, transport, seed=1)
    noise = drawn_noise(study, seed=1)(np.array([True, False, True]))
    expected = study.released((sums[0] + sums[2]) / study.units, noise, predictions=None)[1]
    np.testing.assert_array_equal(got.cells, expected)
    due = study.budgets.amount(1, 1)
    assert got.spent.tolist() == [due[0], 0, due[2]]


def test_a_party_that_sends_no_sum_is_left_out_by_name() -> None:
    study = study_of(quorum=2)
    sums = contributions(study, QUERIES, HOLDINGS)
    parties = parties_of(study, sums, [Ledger(":memory:") for _ in sums])
    handlers = {name: party.handle for name, party in parties.items()}

    def lie(request):
        reply = parties["a"].handle(request)
        return replace(reply, votes=-reply.votes) if isinstance(reply, VoteReply) else reply

    found = labelling_of(
        study,
        ClearAggregation(simulated(np.random.default_rng(0))),
        InProcessTransport(handlers | {"a": lie}),
        Ledger(":memory:"),
    )
    assert found.refusals == {"a": "bad_votes"}
    assert found.spent[0] == 0
    assert found.cells is not None


def test_soft_labels_follow_the_records_where_budgets_are_large() -> None:
    study = study_of(epsilon=(50.0, 50.0, 50.0))
    features = RNG.normal(size=(4000, 3)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(np.int64)
    holdings = [(features[at::3], labels[at::3], None) for at in range(3)]
    study = study.voting(population=4000)
    labelling = live_record_votes(study, contributions(study, QUERIES, holdings), seed=0)
    soft = soft_pool_labels(study, labelling, QUERIES, features[:500], records=4000)
    assert (soft.probabilities.argmax(axis=1) == labels[:500]).mean() > 0.75


def test_contributions_to_other_queries_than_the_studys_are_refused() -> None:
    other = Blocks(FeatureMap((3,)), QUERIES.blocks[:1])
    with pytest.raises(InvalidInput, match="not those of the study"):
        contributions(study_of(), other, HOLDINGS)


@pytest.mark.parametrize("terms", [{"signed": False}, {"votes": GRADED.filled - 1}, {"queries": GRADED.rows + 1}])
def test_contributions_are_refused_where_the_study_says_less_of_its_queries_than_a_unit_moves(terms) -> None:
    study = study_of(queries=GRADED)
    contributions(study, GRADED, HOLDINGS)
    with pytest.raises(InvalidInput, match="of the study"):
        contributions(study.voting(**terms), GRADED, HOLDINGS)


def test_a_studys_file_gives_the_same_study_back(tmp_path) -> None:
    graded = study_of("secure_sum", unit="patient", queries=GRADED)
    for study in (graded, study_of(), study_of("secure_sum", unit="patient")):
        path = tmp_path / f"{study.unit}.toml"
        path.write_text(write_study(study))
        assert read_study(path) == study
        assert read_study(path).digest == study.digest
    path.write_text(path.read_text().replace("population = 79", "population = 1"))
    with refuses(InvalidInput, "records.population", 1):
        read_study(path)


@pytest.mark.parametrize("level", LEVELS)
def test_entries_of_both_signs_cost_twice_as_much_in_mu_squared(level) -> None:
    """The same noise, weights and units: Delta^2 is 4, where it is 2 for cells."""
    graded = study_of(level, queries=GRADED)
    cells = graded.voting(signed=False)
    costs = [each.budgets.ask + each.budgets.answer for each in (graded, cells)]
    assert costs[0] / costs[1] == pytest.approx(2, rel=1e-9)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_known_mu_is_charged_for_the_known_move(level, kind) -> None:
    """mu = Delta W / sigma, of continuous noise; integer noise loses four units of its variance."""
    study = study_of(level, queries=KINDS[kind])
    units = study.units if study.lattice is not None else None
    lost = 0 if units is None else 4 / units**2
    mu = np.sqrt({"cells": 2, "graded": 4}[kind] / (study.votes.sigma**2 - lost)) * study.weights
    assert study.accountant_name == "gaussian_dp"
    assert (study.budgets.ask + study.budgets.answer) == pytest.approx(mu**2, rel=1e-8)


def test_weights_of_too_few_lattice_units_are_refused() -> None:
    level = simulated_level("secure_sum", units=64, colluders=1, seats=3)
    with refuses(InvalidInput, "at least"):
        study_of(level, queries=GRADED)
    assert study_of(level).votes.votes == 3


def test_features_without_signs_are_cells_of_equal_weight_or_refused() -> None:
    with refuses(InvalidInput, "signs"):
        study_of(queries=Blocks(FeatureMap((3,)), (*QUERIES.blocks, Constant(share=1))))


def test_a_budget_that_affords_nothing_is_refused() -> None:
    with refuses(InvalidInput, "epsilon 1e-12"):
        study_of(epsilon=(1.0, 1e-12, 1.0))


def test_clear_votes_have_real_valued_noise_unless_the_level_has_units() -> None:
    assert study_of().lattice is None
    assert isinstance(study_of().confidentiality, Clear)
    assert study_of("secure_sum").lattice.classes == 6  # 2 for each of a record's three votes
    assert study_of("secure_sum", unit="patient").lattice.classes == 32


def test_only_sums_of_all_seats_are_replayed_and_only_where_records_vote() -> None:
    study, teachers = study_of(), make_study([1.0, 1.0, 1.0], threshold=1.0)
    sums = RecordSums(2, contributions(study, QUERIES, HOLDINGS))
    for of, stored, words in (
        (study, RecordSums(2, sums.sums[:2]), "sums of 2 seats; allowed: 3"),
        (replace(teachers, classes=2), sums, "sums of records and a study of teachers"),
    ):
        with pytest.raises(InvalidInput, match=words):
            replay(of, stored, noise=drawn_noise(of, seed=0), presence=None)


@pytest.mark.parametrize("level", ["clear", "two_server"])
def test_a_simulated_count_tells_the_patients_of_each_hospital_or_of_all(capsys, level):
    flags = ["--columns", "age,sex", "--parties", "3", "--epsilon", "4", "--confidentiality", level]
    assert run_command(["count", *flags]) == 0
    first, everyone, *rows = capsys.readouterr().out.splitlines()
    assert first.split(",")[:5] == ["site", "column", "value", "label", "patients"]
    *_, low, high, _ = everyone.split(",")
    private = len(datasets.load("heart_disease", DatasetRequest(seed=0)).private_labels)
    assert int(low) <= private <= int(high)
    sites = {row.split(",")[0] for row in rows}
    assert sites == {"all", *(f"hospital-{at}" for at in range(3) if level == "clear")}
