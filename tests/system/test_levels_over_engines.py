"""Every level of confidentiality over the engines that carry messages between processes, and teachers."""

import numpy as np
import pytest

from protocols.levels.clear import ClearAggregation
from simulations.stages.record_votes import live_record_votes
from tests.contract.test_level_contract import in_clear, labelled
from tests.harness.carried_studies import CASTING, MASKED, NAMES, RECORDS, SHARED, SUMS, TEACHERS, VOTES, cast_digits
from tests.harness.engine_here import EngineHere
from tests.harness.party_host import SEED


def check_same(got, expected):
    np.testing.assert_array_equal(got.labels, expected.labels)
    assert got.spent.tolist() == expected.spent.tolist()
    assert not got.ledger_differences


def test_every_engine_carries_shares(carried):
    noise = carried["total"].again()
    check_same(carried["shares"], labelled(in_clear(SHARED), VOTES, ClearAggregation(noise))[0])


def test_every_engine_carries_masked_sums(carried):
    noise = carried["opened"].noise(MASKED, VOTES, set(NAMES))
    check_same(carried["masked"], labelled(in_clear(MASKED), VOTES, ClearAggregation(noise))[0])


@pytest.mark.parametrize("case", RECORDS, ids="-".join)
def test_records_release_the_same_sums_over_every_engine_as_in_one_process(carried, case):
    expected = live_record_votes(RECORDS[case], list(SUMS[case]), seed=SEED)
    np.testing.assert_array_equal(carried[case].cells, expected.cells)
    check_same(carried[case], expected)


def test_every_engine_casts_the_votes_of_one_process_and_its_records_say_the_same(carried, tmp_path):
    cast, cells = cast_digits(tmp_path, EngineHere)
    np.testing.assert_array_equal(carried["cast"].votes, cast.votes)
    np.testing.assert_array_equal(carried["cells"], cells)
    assert carried["cast"].trained == CASTING * TEACHERS
