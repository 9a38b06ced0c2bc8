"""The levels that hide votes over gRPC with mutual TLS: the same labels and ledgers, and who is missing is named."""

import numpy as np
import pytest

from coordinator.release.charges import check_charges, check_receipts
from coordinator.release.evidence import collect, receipts
from party.audit import audit_seat
from protocols.crypto.identity import new_key
from protocols.crypto.randomness import system_source
from protocols.ledger.ledger import Ledger
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.votes import NOT_ASKED
from protocols.wire.messages import StepRequest
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium
from tests.harness.levels import GuardianHere, secure_sum, two_server
from tests.harness.studies import deployed_study, pool_of

PARTIES = 5


def study_of(level, keys=None, **more):
    """A study between organisations at a level, with the keys of its hospitals."""
    given = {"confidentiality": level, "sigma": 2.0, "sigma_threshold": 2.0, "threshold": 2.5} | more
    if level.name == "secure_sum":
        given |= {"view": "histogram", "account": "gaussian", "sigma_threshold": None, "quorum": 4}
    if keys is not None:
        given["keys"] = [keys[f"hospital-{number}"] for number in range(PARTIES)]
    return deployed_study(PARTIES, **given)


def seat_keys():
    return {f"hospital-{number}": new_key() for number in range(PARTIES)}


def spends(consortium, count=PARTIES):
    """What each of the first hospitals' own ledgers says, in order of the roster."""
    return [consortium.ledgers[seat.party].balance(seat.party).spent for seat in consortium.study.roster[:count]]


def test_shares_over_sessions_release_labels_and_everybody_settles_alike(tmp_path):
    keys = seat_keys()
    study = study_of(two_server(), keys)
    with Ledger(tmp_path / "guardian.sqlite") as guardians:
        here = GuardianHere(study, guardians, system_source)
        with Consortium(
            study, tmp_path, keys=keys, aggregation=lambda: SharedAggregation(here.dial, source=system_source)
        ) as made:
            made.start_all()
            got = made.label()
            assert (got.labels >= 0).any()
            assert not got.refusals
            assert not got.ledger_differences
            at_guardian = [guardians.balance(seat.party).spent for seat in study.roster]
            assert spends(made) == got.spent.tolist() == at_guardian


def test_masked_sums_over_sessions_release_labels_without_one_hospital(tmp_path):
    keys = seat_keys()
    study = study_of(secure_sum(colluders=1), keys)
    with Consortium(study, tmp_path, keys=keys, aggregation=SummedAggregation, unawaited={"hospital-4"}) as made:
        for number in range(PARTIES - 1):
            made.add_node(f"hospital-{number}")
            made.start_node(f"hospital-{number}")
        assert not made.hub.wait_for(frozenset(made.threads), timeout_s=300)
        got = made.label()
        assert (got.labels >= 0).any()
        assert got.refusals == {"hospital-4": "absent"}
        assert spends(made, 4) == got.spent.tolist()[:4]


@pytest.mark.slow
def test_a_sum_that_is_given_up_is_told_charged_and_proved_alike_by_everybody(tmp_path):
    """One hospital is not in the first sum, one leaves before it is opened: the others go on without the batch."""
    keys = seat_keys()
    study = study_of(secure_sum(colluders=1), keys, pool=20, batch_limit=10, sigma=4.0)
    pool = pool_of(20, 4)
    with Consortium(study, tmp_path, keys=keys, aggregation=SummedAggregation, unawaited={"hospital-4"}) as made:
        for number in range(PARTIES):
            made.add_node(f"hospital-{number}")
        for number in range(PARTIES - 1):
            made.start_node(f"hospital-{number}")
        assert not made.hub.wait_for(frozenset(made.threads), timeout_s=300)
        real = made.coordinator._exchange

        def leaving(requests):
            first = next(iter(requests.values()))
            if isinstance(first, StepRequest) and first.step == "sum_agree" and "hospital-3" in made.threads:
                made.stop_node("hospital-3")
                made.unawaited.add("hospital-3")
            return real(requests)

        made.coordinator._exchange = leaving
        assert made.label().stop.reason == "quorum_lost"
        made.coordinator._exchange = real
        reserved = spends(made)
        assert min(reserved[:4]) > 0 == reserved[4]
        made.coordinator.give_up(0, pool)
        made.unawaited.remove("hospital-4")
        made.start_node("hospital-4")
        assert not made.hub.wait_for(frozenset(made.threads), timeout_s=300)
        got = made.label()
        assert got.stop.reason == "pool_exhausted"
        assert (got.labels[:10] == NOT_ASKED).all()
        assert (got.labels[10:] != NOT_ASKED).all()
        # The one that left is told when it is back, and forgets what would open the sum.
        made.start_node("hospital-3")
        wait_until(lambda: made.ledgers["hospital-3"].unsettled() == [])
        wait_until(lambda: made.ledger.log.kept(0, "hospital-3", "settled"))
        assert made.ledgers["hospital-3"].noted(made.ledger.stored(0).digest, "sum_secret") is None
        assert spends(made)[3] == reserved[3]
        counted = [made.ledger.balance(seat.party).spent for seat in study.roster]
        assert spends(made, 3) == counted[:3]
        assert np.all(np.array(spends(made)) <= counted)
        for seat, ledger in made.ledgers.items():
            audited = audit_seat(ledger, study, seat, authority=made.authority, labels=got.labels, attested=None)
            assert audited.findings == (), seat
        evidence = collect(tmp_path / "coordinator.sqlite", study=study.digest)
        opened = receipts(evidence, authority=made.authority)
        assert {each.seat for each in opened if each.number == 0} == {f"hospital-{number}" for number in range(4)}
        check_charges(study, got.labels, evidence)
        check_receipts(study, got.labels, evidence, opened)
