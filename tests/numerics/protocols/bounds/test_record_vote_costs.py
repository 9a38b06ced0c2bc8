"""What record votes cost, against quadratures and enumerations made apart from the code (tests/vectors/SOURCES.md)."""

import json
from pathlib import Path

import numpy as np
import pytest

from protocols.bounds.gaussian import gdp_delta, gdp_epsilon, gdp_mu
from protocols.bounds.label_only import ORDERS, label_rdp, threshold_rdp
from protocols.bounds.lattice_gaussian import lattice_mu_squared, least_sigma_units, rounding_distance
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.budgets.accountant import accountant, default_accountant
from protocols.errors import InvalidInput
from protocols.mechanisms import GNMax, Lattice, Sensitivity
from tests.harness.pages import ROOT
from tests.harness.record_votes import cell_sum
from tests.harness.refusals import refuses

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "record_votes.json").read_text())

PAGE = ROOT / "docs" / "decisions" / "0034-record-votes-charge-the-sums.md"


def charged(d, *, lattice=None, sigma=1.0):
    """The mu squared that is charged for one release in which a unit of weight d votes."""
    mechanism = GNMax(sigma=sigma).on_lattice(lattice)
    moved = Sensitivity.always(np.array([d * sigma]), delta_squared=2)
    return accountant("gaussian_dp").query_cost(mechanism, moved, view="histogram", classes=2).ask[0]


@pytest.mark.parametrize("row", VECTORS["swap"], ids=str)
def test_a_swap_costs_what_quadrature_over_two_cells_finds(row):
    mu = np.sqrt(charged(row["d"]))
    assert gdp_delta(mu, np.array([row["epsilon"]]))[0] == pytest.approx(row["delta"], rel=1e-10, abs=1e-25)


@pytest.mark.parametrize("row", VECTORS["renyi"], ids=str)
def test_its_renyi_divergence_is_the_gaussian_one_at_every_order(row):
    moved = Sensitivity.always(np.array([row["d"]]), delta_squared=2)
    cost = GNMax(sigma=1.0).noise_rdp(moved, np.array([float(row["order"])]), view="histogram")
    assert cost.ask[0, 0] == pytest.approx(row["rdp"], rel=1e-12)


@pytest.mark.parametrize("row", VECTORS["one_cell"], ids=str)
def test_a_unit_that_leaves_one_cell_and_enters_none_costs_half_as_much_in_mu_squared(row):
    mu = np.sqrt(charged(row["d"]) / 2)
    assert gdp_delta(mu, np.array([row["epsilon"]]))[0] == pytest.approx(row["delta"], rel=1e-10, abs=1e-25)


@pytest.mark.parametrize("row", VECTORS["patients"], ids=str)
def test_patients_contribute_whole_units_and_move_no_further_than_the_accountant_says(row):
    weight, votes, cells = row["weight_units"], row["votes"], len(row["records"])

    def contribution(counts):
        """The unit alone: the sum of a party with another unit, less that of two such others."""
        placed = np.repeat(np.arange(cells), counts)
        # Its votes, `votes` to a record; a record's cells differ, so its votes come from different cells.
        mine = np.sort(placed).reshape(votes, -1).T
        aside = np.arange(votes)[None] + cells
        both = np.concatenate([mine, aside])
        named = np.array([0] * len(mine) + [1])
        total = cell_sum(both, named, weight_units=weight, cell_count=cells + votes)
        return total[:cells]

    first, second = contribution(row["records"]), contribution(row["other"])
    assert first.tolist() == row["entries"]
    assert second.tolist() == row["other_entries"]
    exact = [sum(int(x) ** 2 for x in each) for each in (first, second, first - second)]
    assert exact == [row["squared_norm"], row["other_squared_norm"], row["squared_distance"]]
    assert max(exact[:2]) <= weight**2
    assert exact[2] <= 2 * weight**2


def test_integer_noise_never_costs_more_than_charged_and_hardly_less():
    for row in VECTORS["lattice"]:
        s, k = float(row["s"]), row["k"]
        mu_squared = charged(k / s, lattice=Lattice(units=1, shares=row["shares"], classes=2), sigma=s)
        assert mu_squared[0] == pytest.approx(2 * k * k / (s * s - 4), rel=1e-12)
        claimed = gdp_delta(np.sqrt(mu_squared), np.array([row["epsilon"]]))[0]
        assert row["delta"] <= claimed <= 1.05 * row["delta"]
        continuous = gdp_delta(np.array([np.sqrt(2) * k / s]), np.array([row["epsilon"]]))[0]
        assert continuous == pytest.approx(row["continuous"], rel=1e-9)


def test_the_continuous_formula_alone_is_no_bound_for_integer_noise():
    excess = [row["delta"] / row["continuous"] - 1 for row in VECTORS["lattice"] if row["s"] == 64]
    assert 2e-4 < max(excess) < 4e-4
    assert -4e-4 < min(excess) < -2e-4


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_renyi_dp_would_take_eight_to_nine_percent_more_noise(epsilon):
    mu = float(gdp_mu(np.array([epsilon]), np.array([1e-5]))[0])
    sigma = np.sqrt(2) / mu
    costs = [rdp_to_epsilon(ORDERS / (more * sigma) ** 2, ORDERS, delta=1e-5).min() for more in (1.08, 1.095)]
    assert costs[0] > epsilon > costs[1]


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 8.0])
def test_labels_alone_would_save_no_noise(epsilon):
    """A vote moved within its query, under the label bound, at the noise for which the sums cost exactly epsilon."""
    d = float(gdp_mu(np.array([epsilon]), np.array([1e-5]))[0]) / np.sqrt(2)
    for classes in (2, 3, 10):
        found = rdp_to_epsilon(label_rdp(np.full(len(ORDERS), d), ORDERS, classes=classes), ORDERS, delta=1e-5).min()
        assert found > epsilon


def _row(begins):
    """The figures of the row of the page's table of noise that begins so."""
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {begins}"))
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def test_the_pages_table_of_noise_is_the_least_for_sums_and_for_labels_alone():
    def sums_seen(sigma):
        return gdp_epsilon(np.array([np.sqrt(2) / sigma]), np.array([1e-5]))[0]

    def labels_alone(sigma):
        """A unit moves within its query, or from one query to another: max(D2, 2 D1)."""
        d = np.full(len(ORDERS), 1 / sigma)
        cost = np.maximum(label_rdp(d, ORDERS, classes=3), 2 * threshold_rdp(d, ORDERS))
        return rdp_to_epsilon(cost, ORDERS, delta=1e-5).min()

    for begins, epsilon_of in (("σ if the sums", sums_seen), ("σ if labels alone", labels_alone)):
        for epsilon, shown in zip(_row("ε"), _row(begins), strict=True):
            last_digit = 10.0 ** -len(shown.partition(".")[2])
            assert epsilon_of(float(shown)) <= float(epsilon) < epsilon_of(float(shown) - last_digit)


@pytest.mark.parametrize(("s", "n"), [(64.0, 1), (64.0, 455), (200.0, 4444)])
def test_shares_are_nearly_one_discrete_gaussian_wherever_the_bound_is_stated(s, n):
    assert s >= least_sigma_units(n)
    assert lattice_mu_squared(np.array([1.0]), sigma_units=s, shares=n)[0] > 1 / s**2
    assert 0 < rounding_distance(shares=n) < 1e-33


def test_noise_that_is_too_coarse_is_refused_and_charged_in_renyi_dp():
    for sigma, shares in ((63.9, 1), (64.0, 456), (float("nan"), 1)):
        with refuses(InvalidInput, "gaussian_dp"):
            lattice_mu_squared(np.array([1.0]), sigma_units=sigma, shares=shares)
    coarse = GNMax(sigma=63.9).on_lattice(Lattice(units=1, shares=1, classes=2))
    assert default_accountant(coarse, "histogram").name == "gaussian"
    assert default_accountant(GNMax(sigma=64.0).on_lattice(coarse.lattice), "histogram").name == "gaussian_dp"
    with refuses(InvalidInput, "gaussian_dp"):
        accountant("gaussian_dp").check(coarse, "histogram")
