"""The levels that hide votes over gRPC with mutual TLS: the same labels and ledgers, and who is missing is named."""

from __future__ import annotations

from protocols.accounting.ledger import Ledger
from protocols.aggregation.shared_votes import TwoServer
from protocols.aggregation.summed_votes import SecureSum
from protocols.identity import new_key
from protocols.randomness import system_source
from tests.consortium import Consortium, deployed_study
from tests.contracts.levels import GuardianHere, secure_sum, two_server

PARTIES = 5


def study_of(level, keys=None, **more):
    """A study between organisations at a level, with the keys of its hospitals."""
    given = {"confidentiality": level, "sigma": 2.0, "sigma_threshold": 2.0, "threshold": 2.5} | more
    if level.level == "secure_sum":
        given |= {"view": "histogram", "account": "gaussian", "sigma_threshold": None, "quorum": 4}
        given["keys"] = [keys[f"hospital-{number}"] for number in range(PARTIES)]
    return deployed_study(PARTIES, deadline_s=20.0, **given)


def seat_keys():
    return {f"hospital-{number}": new_key() for number in range(PARTIES)}


def spends(consortium, count=PARTIES):
    """What each of the first hospitals' own ledgers says, in order of the roster."""
    return [consortium.ledgers[seat.party].balance(seat.party).spent for seat in consortium.study.roster[:count]]


def test_shares_over_sessions_release_labels_and_everybody_settles_alike(tmp_path):
    study = study_of(two_server())
    with Ledger(tmp_path / "guardian.sqlite") as guardians:
        here = GuardianHere(study, guardians, system_source)
        with Consortium(study, tmp_path, aggregation=lambda: TwoServer(here.dial, source=system_source)) as made:
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
    with Consortium(study, tmp_path, keys=keys, aggregation=SecureSum) as made:
        for number in range(PARTIES - 1):
            made.add_node(f"hospital-{number}")
            made.start_node(f"hospital-{number}")
        assert not made.hub.wait_for(frozenset(made.threads), timeout_s=20)
        got = made.label()
        assert (got.labels >= 0).any()
        assert got.refusals == {"hospital-4": "absent"}
        assert spends(made, 4) == got.spent.tolist()[:4]
