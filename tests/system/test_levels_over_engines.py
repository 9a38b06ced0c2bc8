"""The levels of confidentiality that hide votes, over the engines that carry messages between processes."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.two_server.aggregation import SharedAggregation
from simulations.engines import ENGINES, open_engine
from tests.contract.test_level_contract import Opened, TotalNoise, in_clear, labelled
from tests.harness.levels import SEAT_KEYS, GuardianHere, lattice_study, secure_sum, two_server
from tests.harness.party_host import EngineTransport, party_host
from tests.harness.seeded import seeded_source
from tests.harness.studies import make_votes


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_carries_shares(name, tmp_path, monkeypatch):
    study = lattice_study(two_server(), classes=10)
    votes, _ = make_votes(6, 40)
    total = TotalNoise(monkeypatch)
    with Ledger(":memory:") as guardians:
        here = GuardianHere(study, guardians, seeded_source(5))
        got, _ = open_engine(name, workers=2).run(
            party_host(tmp_path, study, votes),
            [seat.party for seat in study.roster],
            lambda exchange: labelled(
                study, votes, SharedAggregation(here.dial, source=seeded_source(6)), exchange=EngineTransport(exchange)
            ),
        )
    expected, _ = labelled(in_clear(study), votes, ClearAggregation(total.again()))
    np.testing.assert_array_equal(got.labels, expected.labels)
    assert got.spent.tolist() == expected.spent.tolist()
    assert not got.ledger_differences


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_carries_masked_sums(name, tmp_path, monkeypatch):
    study = lattice_study(secure_sum(), classes=10)
    votes, _ = make_votes(6, 40)
    opened = Opened(monkeypatch)
    got, _ = open_engine(name, workers=2).run(
        party_host(tmp_path, study, votes, keys=SEAT_KEYS),
        [seat.party for seat in study.roster],
        lambda exchange: labelled(study, votes, SummedAggregation(), exchange=EngineTransport(exchange)),
    )
    everyone = {seat.party for seat in study.roster}
    expected, _ = labelled(in_clear(study), votes, ClearAggregation(opened.noise(study, votes, everyone)))
    np.testing.assert_array_equal(got.labels, expected.labels)
    assert got.spent.tolist() == expected.spent.tolist()
    assert not got.ledger_differences
