"""A second batch is asked once, after the votes, about one model; it costs nobody anything more; at every level."""

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.simulated import simulated_ballot
from protocols.study.file import read_study, write_study
from protocols.study.queries import QueryBatch, no_inputs
from protocols.sums.contributions import said
from protocols.sums.judging import Evaluation, judge_weight
from protocols.sums.residuals import FirstScores, residual_sum
from protocols.wire.messages import Refusal, VoteRequest, decode, encode
from simulations.stages.label import simulated_aggregation
from simulations.stages.record_votes import contributions
from tests.harness.record_votes import GRADED, HOLDINGS, KINDS, LEVELS, study_of
from tests.harness.refusals import refused_for, refuses

TERMS = Evaluation.of(share=0.3, key=b"k" * 32, bins=6, classes=2, threshold=0.5)
MODEL = b"a model"


class Judging:
    """A study with a second batch, its parties and a coordinator, whose exchange and ledgers a test looks at."""

    def __init__(self, level, *, queries=GRADED, residuals=False, **how):
        judges = None if residuals else TERMS
        self.study = study_of(level, queries=queries, evaluation=judges, residuals=residuals, **how)
        rng = np.random.default_rng(5)
        self.votes = contributions(self.study, queries, HOLDINGS)
        self.judged = [rng.integers(0, 50, (TERMS.rows, 2)) for _ in range(3)]
        self.ledgers = [Ledger(":memory:") for _ in range(3)]
        self.ledger, self.guardians = Ledger(":memory:"), Ledger(":memory:")
        self.models: list[bytes] = []
        self.parties = {
            seat.party: Party(
                seat.party,
                study=self.study,
                ledger=self.ledgers[at],
                voter=lambda batch, at=at: self._says(batch, at),
                coins_from=None,
                ballot=simulated_ballot(self.study, at, ledger=self.ledgers[at], seed=1),
            )
            for at, seat in enumerate(self.study.roster)
        }
        self.absent, self.lost = set(), set()

    def _says(self, batch, at):
        self.models.append(batch.model)
        if batch.number and self.study.votes.residuals:
            return self.residuals(batch.model, at)
        return self.judged[at] if batch.number else self.votes[at]

    def residuals(self, model, at):
        features, labels, _ = HOLDINGS[at]
        weight = round(self.study.roster[at].weight * self.study.units)
        first = FirstScores.from_bytes(model, rows=GRADED.rows, classes=2)
        return residual_sum(first, said(GRADED, features, labels, classes=2), None, weight_units=weight)

    def coordinator(self):
        transport = InProcessTransport({name: party.handle for name, party in self.parties.items()})

        def exchange(requests):
            # Through the bytes of the wire, as between organisations.
            sent = {name: decode(encode(each)) for name, each in requests.items() if name not in self.absent}
            replies = {name: None for name in requests} | (transport(sent) if sent else {})
            votes = {name for name, each in requests.items() if isinstance(each, VoteRequest)}
            return replies | dict.fromkeys(votes & self.lost)

        aggregation = simulated_aggregation(self.study, guardians=self.guardians, seed=1)
        return Coordinator(self.study, ledger=self.ledger, aggregation=aggregation, exchange=exchange, run=bytes(16))

    def label(self):
        return self.coordinator().label(no_inputs(self.study.votes.queries))

    def spent(self):
        return [ledger.balance(seat.party).spent for ledger, seat in zip(self.ledgers, self.study.roster, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
def test_judges_cost_nothing_more_and_their_sums_have_the_noise_of_votes(level, kind):
    test = Judging(level, queries=KINDS[kind])
    assert test.label().stop.reason == "pool_exhausted"
    before = test.spent()
    found = test.coordinator().ask_again(MODEL)
    assert found.counted.all()
    assert test.models[-3:] == [MODEL] * 3
    assert test.spent() == before == test.study.budgets.amount(1, 1).tolist()
    each = np.concatenate(test.judged) if level == "clear" else np.sum(test.judged, axis=0)
    noise = (found.cells - each) / test.study.units
    assert noise.shape == each.shape
    # False alarms: below 1e-6 of a chi-square with 24 or more degrees of freedom. More noise than sigma is allowed for
    # shares of a quorum, and two servers.
    scaled = np.square(noise / test.study.votes.sigma).sum() / noise.size
    assert 0.2 < scaled < 8
    again = test.coordinator().ask_again(MODEL)
    np.testing.assert_array_equal(again.cells, found.cells)
    assert len(test.models) == 6
    # A labelling that is asked for again is of votes alone.
    assert test.label().batches == [(test.study.votes.queries,) * 2]


@pytest.mark.parametrize("level", LEVELS)
def test_residuals_are_paid_for_with_the_votes_and_their_total_has_the_same_noise(level):
    test, plain = Judging(level, residuals=True), study_of(level, queries=GRADED)
    assert test.study.votes.delta_squared == 2 * plain.votes.delta_squared
    assert test.study.votes.sigma == pytest.approx(2**0.5 * plain.votes.sigma, rel=1e-3)
    assert test.label().stop.reason == "pool_exhausted"
    before = test.spent()
    model = FirstScores.of(np.random.default_rng(3).normal(size=(GRADED.rows, 2))).to_bytes()
    found = test.coordinator().ask_again(model)
    assert found.counted.all()
    assert test.spent() == before
    exact = sum(test.residuals(model, at) for at in range(3))
    scaled = np.square((found.cells - exact) / test.study.units / test.study.votes.sigma).mean()
    assert 0.2 < scaled < 8  # as above
    np.testing.assert_array_equal(test.label().again.cells, found.cells)
    with refused_for("batch_reused"):
        test.coordinator().ask_again(FirstScores.of(np.zeros((GRADED.rows, 2))).to_bytes())


def test_residuals_are_of_graded_features_alone_and_are_in_the_file_and_the_digest(tmp_path):
    study = study_of("two_server", queries=GRADED, residuals=True)
    (tmp_path / "study.toml").write_text(write_study(study))
    assert read_study(tmp_path / "study.toml") == study
    assert study.digest != study.voting(residuals=False).digest
    with refuses(InvalidInput, "residuals is true"):
        study_of(residuals=True)
    with refuses(InvalidInput, "residuals is true"):
        study_of(queries=GRADED, residuals=True, evaluation=TERMS)


def test_without_a_quorum_nothing_is_released_and_asking_again_continues():
    test = Judging("clear")
    test.label()
    test.absent = {"b"}
    few = test.coordinator().ask_again(MODEL)
    assert few.cells is None
    assert few.refusals == {"b": "absent"}
    test.absent = set()
    assert test.coordinator().ask_again(MODEL).counted.all()


@pytest.mark.parametrize("level", LEVELS)
def test_whose_votes_were_lost_is_not_asked_for_residuals_though_it_paid_for_them(level):
    test = Judging(level, residuals=True, quorum=2, colluders=0)
    test.lost = {"c"}
    assert test.label().stop.reason == "pool_exhausted"
    assert test.spent()[2] > test.ledger.balance("c").spent == 0
    test.lost = set()
    found = test.coordinator().ask_again(FirstScores.of(np.ones((GRADED.rows, 2))).to_bytes())
    assert found.counted.tolist() == [True, True, False]
    assert (len(test.models), found.refusals) == (5, {})


def test_no_other_model_is_judged_and_none_before_votes():
    test = Judging("clear")
    with refused_for("unknown_batch"):
        test.coordinator().ask_again(MODEL)
    ids = np.arange(test.study.votes.queries, test.study.query_limit)
    request = VoteRequest(test.study.digest, bytes(16), QueryBatch(0, ids, no_inputs(len(ids)), MODEL))
    refused = test.parties["a"].handle(request)
    assert isinstance(refused, Refusal)
    assert refused.code == "unknown_batch"
    assert test.models == []
    assert test.spent() == [0, 0, 0]
    test.label()
    found = test.coordinator().ask_again(MODEL)
    with refused_for("batch_reused"):
        test.coordinator().ask_again(b"other")
    for number, model, code in ((1, b"other", "batch_reused"), (2, MODEL, "query_limit")):
        batch = QueryBatch(number, ids, no_inputs(len(ids)), model)
        again = test.parties["a"].handle(VoteRequest(test.study.digest, bytes(16), batch))
        assert isinstance(again, Refusal)
        assert again.code == code
    np.testing.assert_array_equal(test.coordinator().ask_again(MODEL).cells, found.cells)


def test_one_batch_never_holds_votes_and_judges_nor_a_part_of_either():
    test = Judging("clear")
    rows, limit = test.study.votes.queries, test.study.query_limit
    test.label()
    for ids in (np.arange(rows, limit - 1), np.arange(rows - 1, limit), np.arange(1, rows)):
        fresh = Judging("clear")
        fresh.label()
        batch = QueryBatch(1, ids, no_inputs(len(ids)), MODEL)
        refused = fresh.parties["a"].handle(VoteRequest(test.study.digest, bytes(16), batch))
        assert isinstance(refused, Refusal)
        assert fresh.spent()[0] == test.spent()[0]
        assert len(fresh.models) == 3


@pytest.mark.parametrize("level", LEVELS)
def test_the_charge_is_that_of_a_study_without_judges_but_for_the_distance_of_the_noise_in_more_cells(level):
    for queries in KINDS.values():
        plain, judged = study_of(level, queries=queries), study_of(level, queries=queries, evaluation=TERMS)
        assert judged.votes.delta_squared == plain.votes.delta_squared
        assert judged.votes.sigma == pytest.approx(plain.votes.sigma, rel=1e-6)
        assert judged.query_limit == plain.query_limit + TERMS.rows
        assert judged.mechanism.noise_distance(classes=2, total_weight=1) * judged.query_limit >= (
            plain.mechanism.noise_distance(classes=2, total_weight=1) * plain.query_limit
        )


def test_the_terms_of_judges_are_in_the_file_and_in_the_digest(tmp_path):
    study = study_of("two_server", queries=GRADED, evaluation=TERMS)
    (tmp_path / "study.toml").write_text(write_study(study))
    assert read_study(tmp_path / "study.toml") == study
    assert study.digest != study_of("two_server", queries=GRADED).digest
    for change in ({"share": 0.6}, {"key": "0" * 63}, {"rows": 9}, {"threshold": 1.0}, {"bins": 1}):
        values = {"share": 0.3, "key": "1" * 64, "bins": 6, "rows": 8, "threshold": 0.5} | change
        with pytest.raises(InvalidInput, match=next(iter(change))):
            study.voting(evaluation=Evaluation(**values))
    with refuses(InvalidInput, "unit"):
        study_of("clear", unit="party", evaluation=TERMS)


def test_judges_weigh_root_two_where_votes_have_signs_and_never_more():
    assert judge_weight(1000, signed=True) == 1414
    assert judge_weight(1000, signed=False) == 1000
