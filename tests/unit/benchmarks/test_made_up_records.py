"""Made-up records are what their benchmark says: sums that as many units could send, but for the last."""

from pathlib import Path

import pytest

from benchmarks.made_up_records import attacks, setting
from protocols.errors import InvalidInput
from protocols.sums.contributions import Claim


@pytest.mark.parametrize(("kind", "beyond"), [("graded", {"any vector"}), ("columns", {"any vector", "norm alone"})])
def test_only_what_is_no_sum_of_units_is_refused(kind: str, beyond: set[str], tmp_path: Path) -> None:
    of = setting("breast_cancer", kind, seed=0, data_dir=tmp_path)
    units, weight = len(of.units[of.attacker]), round(float(of.study.weights[of.attacker]) * of.study.units)
    refused = set()
    for what, sent in attacks(of).items():
        try:
            Claim(
                population=units,
                weight_units=weight,
                signed=kind == "graded",
                most_in_all=2**62,
                votes=of.queries.filled,
                partitions=of.queries.partitions,
            ).check(sent)
        except InvalidInput:
            refused.add(what)
    assert refused == beyond
