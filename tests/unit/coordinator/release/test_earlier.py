"""Earlier releases of other units: the composition claims no more than the smallest unit."""

import pytest

from coordinator.release.statement import EarlierRelease, guarantee_table, parse_statement, together
from protocols.budgets.guarantee import Guarantee
from protocols.errors import DataCorrupt
from tests.harness.refusals import refuses

GUARANTEE = Guarantee(1.0, 1e-6, 8.0, 0.1, 0.0)


def release(unit, study):
    return EarlierRelease(study, study, "2026-01-01", unit, {"a": (GUARANTEE,)}, (GUARANTEE,), ())


@pytest.mark.parametrize(
    ("this", "before", "claimed"),
    [
        ("party", ["party"], "party"),
        ("party", ["patient"], "patient"),
        ("patient", ["party"], "patient"),
        ("patient", ["record", "party"], "record"),
        ("record", ["patient"], "record"),
    ],
)
def test_releases_together_protect_the_smallest_of_their_units(this, before, claimed):
    earlier = [release(unit, f"study-{number}") for number, unit in enumerate(before)]
    assert together(release(this, "this"), earlier)["unit"] == claimed


def test_a_statement_of_an_unknown_unit_is_none():
    statement = {
        "study": {"name": "s", "digest": "0"},
        "created": "2026-01-01",
        "protected": {"unit": "patient"},
        "seats": [{"party": "a", "guarantee": guarantee_table(GUARANTEE)}],
        "several_hospitals": {"any": []},
    }
    assert parse_statement(statement).unit == "patient"
    with refuses(DataCorrupt, "privacy statement"):
        parse_statement(statement | {"protected": {"unit": "ward"}})
