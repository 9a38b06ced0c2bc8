"""Studies in which a query costs the same, answered or not: nothing that anybody says of outcomes changes a charge."""

import numpy as np
import pytest

from party.party import Party
from protocols.ledger.ledger import Balance, Ledger
from protocols.levels.clear import ClearAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.noise import simulated
from protocols.study.levels import Clear
from protocols.study.queries import QueryBatch
from protocols.wire.messages import Outcome, Refusal, Settled, VoteRequest, decode
from tests.contract.test_level_contract import labelled
from tests.harness.levels import SEAT_KEYS, lattice_study, rng_votes, secure_sum, two_server
from tests.harness.seeded import seeded_source
from tests.harness.signed import told
from tests.harness.studies import make_study

ONE_DRAW = {"mechanism": "thresholded_gnmax", "sigma_threshold": None, "threshold": 6.0}
CLEAR = lattice_study(Clear(), **ONE_DRAW)
SHARED = lattice_study(two_server(), **ONE_DRAW)
ASKED = 5
OUTCOMES = [np.zeros(ASKED, bool), np.ones(ASKED, bool), np.arange(ASKED) % 2 == 0]


def voted(study, ledger):
    """A party that voted on one batch, and the digest of its request."""
    ballot = None if study is CLEAR else SharedBallot(study, "p0", key=SEAT_KEYS[0], source=seeded_source(1))
    party = Party(
        "p0", study=study, ledger=ledger, voter=lambda batch: np.zeros((1, ASKED), np.int64), coins_from=None,
        ballot=ballot,
    )  # fmt: skip
    request = VoteRequest(study.digest, b"run", QueryBatch(0, np.arange(ASKED), np.zeros((ASKED, 2), np.float32)))
    party.handle(request)
    return party, request.digest


def said_by(study, ledger, digest, answered):
    """An outcome that a coordinator signs, with its guardian's statement where there is one."""
    if study is CLEAR:
        return Outcome(study.digest, digest, answered)
    return told(study, "p0", digest, answered, reply=decode(ledger.stored(0).payload))


def test_a_study_has_something_to_settle_only_where_an_answer_costs_more():
    for study, settles in (
        (make_study([2.0], threshold=1.0), True),
        (make_study([2.0], **ONE_DRAW | {"threshold": 1.0}), False),
        (make_study([2.0], mechanism="gnmax", sigma_threshold=None, threshold=None), False),
        (lattice_study(secure_sum()), False),
        (lattice_study(Clear()), True),
        (SHARED, False),
    ):
        assert study.budgets.settles == settles


@pytest.mark.parametrize("study", [CLEAR, SHARED], ids=["clear", "two_server"])
def test_a_batch_is_charged_for_good_where_it_is_voted_on_and_no_outcome_changes_that(study):
    cap, price = int(study.budgets.cap[0]), int(study.budgets.amount(ASKED, 0)[0])
    assert price == study.budgets.amount(ASKED, ASKED)[0]
    for answered in OUTCOMES:
        with Ledger(":memory:") as ledger:
            party, digest = voted(study, ledger)
            assert ledger.balance("p0") == Balance(cap, settled=price, reserved=0)
            assert [entry.event for entry in ledger.log.entries()] == ["reserved", "settled"]
            # One outcome, then another that contradicts it.
            for said in (answered, ~answered):
                assert party.handle(said_by(study, ledger, digest, said)) == Settled(digest, price)
                assert ledger.balance("p0") == Balance(cap, settled=price, reserved=0)


def test_an_outcome_that_a_guardian_did_not_sign_is_refused_and_changes_nothing_either():
    with Ledger(":memory:") as ledger:
        party, digest = voted(SHARED, ledger)
        before = ledger.balance("p0")
        reply = party.handle(Outcome(SHARED.digest, digest, OUTCOMES[0], bytes(64)))
        assert isinstance(reply, Refusal)
        assert reply.code == "unsigned_outcome"
        assert ledger.balance("p0") == before


def test_a_ledger_ends_the_same_whatever_a_lying_coordinator_told():
    """A coordinator that says the reverse of what it released, to everybody, finds the ledgers of an honest one."""
    votes = rng_votes(6, 1, 40, 5, 3)

    def spent(lie):
        def exchange_of(send):
            def exchange(requests):
                return send({
                    name: Outcome(each.study, each.batch_digest, ~each.answered, each.guardian)
                    if lie and isinstance(each, Outcome) else each
                    for name, each in requests.items()
                })  # fmt: skip

            return exchange

        noise = ClearAggregation(simulated(np.random.default_rng(1)))
        labelling, own = labelled(CLEAR, votes, noise, wrap=exchange_of)
        assert labelling.ledger_differences == {}
        assert labelling.spent.tolist() == own
        return own

    assert spent(lie=True) == spent(lie=False)
