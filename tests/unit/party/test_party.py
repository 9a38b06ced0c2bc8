import re

import numpy as np
import pytest

from party.party import Party
from protocols.errors import CannotVote, InvalidInput
from protocols.ledger.ledger import Ledger
from protocols.study.queries import QueryBatch
from protocols.votes import ABSTAIN
from protocols.wire.messages import Outcome, Refusal, Settled, VoteReply, VoteRequest, encode
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source
from tests.harness.studies import make_study, make_votes

VOTES, _ = make_votes(1, 1000)
RUN = b"one run"
NO_VOTE = Refusal("could_not_vote", str(CannotVote("")))


def batch(number: int, start: int = 0, size: int = 5, fill: float = 0.0) -> QueryBatch:
    return QueryBatch(number, np.arange(start, start + size), np.full((size, 2), fill, np.float32))


def open_party(ledger: Ledger, **changes) -> Party:
    study = make_study([1.0, 2.0], **{"threshold": 1.0, "batch_limit": 100, **changes})
    return Party("p0", study=study, ledger=ledger, voter=lambda b: VOTES[0][:, b.ids].astype(np.int64), coins_from=None)


def study_of(party: Party) -> bytes:
    return party._study.digest


def named(party: Party, queries: QueryBatch) -> bytes:
    """What names the request for these queries."""
    return VoteRequest(study_of(party), RUN, queries).digest


def test_a_vote_is_charged_at_its_worst_case_and_settled_downwards():
    with Ledger(":memory:") as ledger:
        party = open_party(ledger)
        budgets = party._study.budgets
        reply = party.handle(VoteRequest(study_of(party), RUN, batch(0)))
        assert isinstance(reply, VoteReply)
        np.testing.assert_array_equal(reply.votes, VOTES[0][:, :5])
        assert ledger.balance("p0").reserved == budgets.amount(5, 5)[0]
        settled = party.handle(
            Outcome(study_of(party), named(party, batch(0)), np.array([True, False, False, True, False]))
        )
        assert settled == Settled(named(party, batch(0)), int(budgets.amount(5, 2)[0]))
        assert ledger.balance("p0").spent == budgets.amount(5, 2)[0]


def test_the_same_request_gets_the_stored_reply_and_costs_nothing():
    with Ledger(":memory:") as ledger:
        party = open_party(ledger)
        first = party.handle(VoteRequest(study_of(party), RUN, batch(0)))
        spent = ledger.balance("p0").spent
        # Even if the teachers would now answer otherwise.
        party._voter = lambda b: np.zeros((1, len(b.ids)), dtype=np.int64)
        again = party.handle(VoteRequest(study_of(party), RUN, batch(0)))
        assert encode(first) == encode(again)
        assert ledger.balance("p0").spent == spent


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (lambda study: VoteRequest(bytes(32), RUN, batch(1)), "other_study"),
        (lambda study: VoteRequest(study, RUN, batch(0, fill=1.0)), "batch_reused"),
        (lambda study: VoteRequest(study, RUN, batch(0, start=5)), "batch_reused"),
        (lambda study: VoteRequest(study, b"another run", batch(0)), "batch_reused"),
        (lambda study: VoteRequest(study, RUN, batch(1, start=4)), "query_repeated"),
        (lambda study: VoteRequest(study, RUN, batch(1, size=101)), "batch_too_large"),
        (lambda study: VoteRequest(study, RUN, batch(1, start=998)), "query_limit"),
        (lambda study: Outcome(study, bytes(32), np.ones(5, bool)), "unknown_batch"),
        (lambda study: Outcome(study, VoteRequest(study, RUN, batch(0)).digest, np.ones(4, bool)), "bad_outcome"),
        (lambda study: Outcome(bytes(32), VoteRequest(study, RUN, batch(0)).digest, np.ones(5, bool)), "other_study"),
    ],
)
def test_a_refused_request_costs_nothing_and_has_a_stable_code(request_of, code):
    with Ledger(":memory:") as ledger:
        party = open_party(ledger)
        party.handle(VoteRequest(study_of(party), RUN, batch(0)))
        before = ledger.balance("p0")
        refusal = party.handle(request_of(study_of(party)))
        assert isinstance(refusal, Refusal)
        assert refusal.code == code
        assert ledger.balance("p0") == before


def test_an_outcome_that_changes_its_mind_is_refused():
    with Ledger(":memory:") as ledger:
        party = open_party(ledger)
        study = study_of(party)
        party.handle(VoteRequest(study, RUN, batch(0)))
        party.handle(Outcome(study, named(party, batch(0)), np.array([True, True, False, False, False])))
        before = ledger.balance("p0")
        refusal = party.handle(Outcome(study, named(party, batch(0)), np.zeros(5, bool)))
        assert (refusal.code, ledger.balance("p0")) == ("settled_otherwise", before)


def test_a_coordinator_that_asks_beyond_the_cap_is_refused_at_the_cap():
    with Ledger(":memory:") as ledger:
        party = open_party(ledger)
        cap = int(party._study.budgets.cap[0])
        codes = []
        for number in range(40):
            reply = party.handle(VoteRequest(study_of(party), RUN, batch(number, start=number * 20, size=20)))
            codes.append(reply.code if isinstance(reply, Refusal) else "answered")
            assert ledger.balance("p0").spent <= cap
        answered = codes.count("answered")
        assert set(codes) == {"answered", "budget_exceeded"}
        # Reservations never settled stand; what fits is exactly what the cap affords in batches of 20.
        assert answered == cap // int(party._study.budgets.amount(20, 20)[0])


@pytest.mark.parametrize(
    ("votes", "why"),
    [
        (lambda b: np.zeros((2, len(b.ids)), dtype=np.int64), r"shape \(2, "),
        (lambda b: np.full((1, len(b.ids)), 10), r"class ids in \[0, 9\]"),
        (lambda b: np.full((1, len(b.ids)), -2), r"span \[-2, -2\]"),
        (lambda b: np.full((1, len(b.ids)), 1.7), "float64"),
    ],
)
def test_votes_that_are_none_cost_nothing_and_the_partys_own_log_alone_says_why(votes, why):
    told = []
    with Ledger(":memory:") as ledger:
        party = open_party(ledger)
        party._voter, party._on_failure = votes, told.append
        request = VoteRequest(study_of(party), RUN, batch(0))
        assert party.handle(request) == NO_VOTE
        assert len(told) == 1
        assert re.search(why, told[0])
        assert ledger.balance("p0").spent == 0
        # The audit log, whose head the coordinator countersigns, does not say why either.
        assert not any(re.search(why, str(entry.fields)) for entry in ledger.log.entries())


@pytest.mark.parametrize("error", [CannotVote("class 3 is missing"), InvalidInput("record 17 is 4.5; allowed: 0 to 1")])
def test_teachers_that_fail_cost_nothing_and_nobody_else_hears_why(error):
    def failing(_):
        raise error

    told = []
    with Ledger(":memory:") as ledger:
        party = open_party(ledger)
        party._voter, party._on_failure = failing, told.append
        assert party.handle(VoteRequest(study_of(party), RUN, batch(0))) == NO_VOTE
        assert told in (["class 3 is missing"], ["record 17 is 4.5; allowed: 0 to 1"])
        assert ledger.balance("p0").spent == 0


def test_a_party_that_is_not_on_the_roster_cannot_be_opened():
    with Ledger(":memory:") as ledger, refuses(InvalidInput, "roster"):
        Party(
            "stranger",
            study=make_study([1.0], threshold=1.0),
            ledger=ledger,
            voter=lambda b: b.ids[None],
            coins_from=None,
        )


def test_a_ledger_of_another_study_is_refused_so_that_one_charge_never_pays_two_releases():
    with Ledger(":memory:") as ledger:
        party = open_party(ledger)
        party.handle(VoteRequest(study_of(party), RUN, batch(0)))
        with refuses(InvalidInput, "study"):
            open_party(ledger, threshold=2.0)


def test_no_more_queries_than_the_limit_are_ever_answered():
    with Ledger(":memory:") as ledger:
        party = open_party(ledger, queries=10, sigma=1000.0)
        answered = 0
        for number in range(50):
            reply = party.handle(VoteRequest(study_of(party), RUN, batch(number, start=number % 10, size=1)))
            answered += isinstance(reply, VoteReply)
        assert answered == 10


def test_every_vote_of_a_party_has_a_coin_of_its_own():
    study = make_study(
        [8.0], teachers=3, sigma=400.0, sigma_threshold=900.0, threshold=1.0, participation="secret", rates=[0.5]
    )
    votes = np.ones((3, 1000), dtype=np.int64)
    with Ledger(":memory:") as ledger:
        party = Party("p0", study=study, ledger=ledger, voter=lambda b: votes[:, b.ids], coins_from=seeded_source(3))
        reply = party.handle(VoteRequest(study.digest, RUN, batch(0, size=500)))
    entered = reply.votes == 1
    # Each pair of teachers enters together in a quarter of the queries: 5 standard deviations is +-0.097.
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs((entered[one] & entered[other]).mean() - 0.25) < 0.097
    assert set(np.unique(reply.votes)) == {1, ABSTAIN}
