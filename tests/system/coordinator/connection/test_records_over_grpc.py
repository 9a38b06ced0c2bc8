"""Where records vote: nodes and a hub over gRPC release the very sums of one process, at every level."""

import numpy as np
import pytest

from protocols.ledger.ledger import Ledger
from protocols.levels.simulated import seat_key, simulated_ballot, simulated_level
from protocols.study.deployed import deployed
from protocols.study.queries import no_inputs
from simulations.stages.label import simulated_aggregation
from simulations.stages.record_votes import contributions, live_record_votes
from tests.harness.consortium import Consortium
from tests.harness.record_votes import HOLDINGS, KINDS, LEVELS, UNITS, study_of
from tests.harness.studies import deployed_study

TERMS = deployed_study(3)
NAMES = tuple(seat.party for seat in TERMS.roster)
SEED = 8


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("features", KINDS)
def test_the_sums_over_grpc_are_those_of_one_process(level, features, tmp_path) -> None:
    kind = simulated_level(level, units=UNITS, colluders=1 if level == "secure_sum" else None, seats=3)
    study = deployed(study_of(kind, names=NAMES, queries=KINDS[features]), TERMS.terms)
    sums = contributions(study, KINDS[features], HOLDINGS)
    expected = live_record_votes(study, sums, seed=SEED)
    with Ledger(":memory:") as guardians:
        made = Consortium(
            study,
            tmp_path,
            keys={name: seat_key(at) for at, name in enumerate(NAMES)},
            aggregation=lambda: simulated_aggregation(study, guardians=guardians, seed=SEED),
        )
        with made as consortium:
            for at, name in enumerate(NAMES):
                party = consortium.add_node(name, vote=lambda batch, at=at: sums[at])
                party._ballot = simulated_ballot(study, at, ledger=consortium.ledgers[name], seed=SEED)
                consortium.start_node(name)
            assert not consortium.hub.wait_for(frozenset(NAMES), timeout_s=300)
            got = consortium.coordinator.label(no_inputs(study.query_limit))
            at_parties = [consortium.ledgers[name].balance(name).spent for name in NAMES]
    np.testing.assert_array_equal(got.cells, expected.cells)
    assert got.refusals == got.ledger_differences == {}
    assert got.spent.tolist() == at_parties == expected.spent.tolist() == study.budgets.amount(1, 1).tolist()
