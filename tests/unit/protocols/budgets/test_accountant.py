"""What an accountant charges for a mechanism that names it and proves nothing of its kind."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest

from protocols.budgets.accountant import ACCOUNTANTS, default_accountant
from protocols.budgets.filter import budget_filters
from protocols.errors import InvalidInput
from protocols.mechanisms import GNMax, LNMax, Sensitivity
from tests.harness.distributions import example, install, refreshed
from tests.harness.refusals import refuses


@dataclass(frozen=True, kw_only=True)
class Boastful(LNMax):
    """A whole mechanism, not Gaussian, that names accountants whose bounds it does not prove."""

    name = "boastful"

    @classmethod
    def accountants(cls, *, view, on_lattice, secret_coins):
        return ("label_only", "gaussian_dp")


def test_bounds_that_a_mechanism_names_but_does_not_prove_are_refused():
    mechanism = Boastful(gamma=0.1)
    with refuses(InvalidInput, "accountant"):
        default_accountant(mechanism, "label")
    for name in ("label_only", "gaussian_dp"):
        with refuses(InvalidInput, "accountant"):
            ACCOUNTANTS[name].query_cost(
                mechanism, Sensitivity.always(np.ones(1), delta_squared=2), view="label", classes=10
            )


@pytest.fixture
def refreshed_accountants(tmp_path, monkeypatch):
    """A function that installs an accountant beside Conclave, and returns the table with it."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(name, source, entries):
        install(tmp_path, name=name, group="conclave.accountants", entries=entries, source=source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return refreshed(ACCOUNTANTS)

    return installed


def test_an_accountant_of_another_distribution_is_listed_charges_and_converts_as_it_says(refreshed_accountants):
    entries = {"label_only_classic": "classic_conversion:CLASSIC"}
    found = refreshed_accountants("classic_conversion", example("Renyi DP converted"), entries)
    assert {*ACCOUNTANTS.own, "label_only_classic"} <= set(found)
    budget = {"epsilon": np.array([1.0, 4.0]), "delta": np.full(2, 1e-5)}
    classic, usual = (
        budget_filters(
            accountant=found[name],
            mechanism=GNMax(sigma=40.0),
            sensitivity=Sensitivity.always(np.ones(2), delta_squared=2),
            view="label", classes=10, query_limit=1000, total_weight=100.0, answer_rate=1.0, **budget,
        )
        for name in ("label_only_classic", "label_only")
    )  # fmt: skip
    assert (classic.cap < usual.cap).all()
    assert (classic.unit, str(classic.tagged(classic.cap)[0])) == ("nano-RDP", f"{classic.cap[0]} nano-RDP")
    np.testing.assert_allclose(classic.epsilon_guaranteed, budget["epsilon"], rtol=1e-6)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("MADE = 3\n", "allowed: an Accountant"),
        ("from protocols.budgets.accountant import LabelOnly\nMADE = LabelOnly()\n", "its name is 'label_only'"),
        (
            "from protocols.budgets.accountant import GaussianDp\n"
            "class Other(GaussianDp):\n    name = 'other'\nMADE = Other()\n",
            "it counts in nano-mu.2 at 1 orders",
        ),
    ],
)
def test_what_a_hospital_could_not_add_up_with_other_studies_is_no_accountant(refreshed_accountants, source, why):
    table = refreshed_accountants("other_accountant", source, {"other": "other_accountant:MADE"})
    with pytest.raises(InvalidInput, match=why):
        _ = table["other"]
    assert set(ACCOUNTANTS.own) <= set(table.loadable()) <= set(table) - {"other"}
