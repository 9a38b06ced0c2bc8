"""Nodes and hub over real mutual TLS on loopback: the same labels as in one process, and who is turned away."""

import numpy as np
import pytest

from coordinator.coordinator import Coordinator
from coordinator.in_process import InProcess
from party.party import Party
from protocols.accounting.ledger import Ledger
from protocols.noise import simulated
from tests.consortium import Consortium, deployed_study, pool_of, voter


@pytest.fixture
def consortium(tmp_path):
    with Consortium(deployed_study(4), tmp_path) as made:
        yield made


def in_one_process(study):
    parties = {
        seat.party: Party(seat.party, study=study, ledger=Ledger(":memory:"), voter=voter(seat.party), coins_from=None)
        for seat in study.roster
    }
    coordinator = Coordinator(
        study,
        ledger=Ledger(":memory:"),
        noise=simulated(np.random.default_rng(1)),
        exchange=InProcess({name: party.handle for name, party in parties.items()}),
        run=b"run",
    )
    return coordinator.label(pool_of(study.terms.pool_size, study.terms.input_shape[0]))


def test_labels_and_spend_are_those_of_one_process(consortium):
    consortium.start_all()
    labelled, expected = consortium.label(), in_one_process(consortium.study)
    np.testing.assert_array_equal(labelled.labels, expected.labels)
    np.testing.assert_array_equal(labelled.spent, expected.spent)
    assert labelled.stop.reason == expected.stop.reason
    assert labelled.refusals == {}
    assert labelled.ledger_differences == {}
    for name, spent in zip(consortium.parties, expected.spent, strict=True):
        assert consortium.ledgers[name].balance(name).spent == spent
