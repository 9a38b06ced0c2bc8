"""The page of mathematics: code cites sections that exist, and the figures on the page are those of the code."""

import re

import numpy as np
import pytest
from jaxtyping import Float64
from numpy import ndarray

from benchmarks.exact_per_instance import QuerySetting, query_rdp
from protocols.bounds.gaussian import gdp_epsilon
from protocols.bounds.label_only import label_rdp, threshold_rdp
from protocols.bounds.laplace import laplace_histogram_rdp
from protocols.bounds.lattice_label_only import lattice_label_rdp
from protocols.bounds.lattice_smoothing import ROUNDING_SIGMA, ripple
from protocols.bounds.rdp import rdp_to_epsilon, rdp_to_epsilon_mironov
from protocols.bounds.secret_sampling import sampled_label_gaussian_rdp
from protocols.budgets.accountant import ACCOUNTANTS
from protocols.mechanisms import MECHANISMS
from protocols.noise import float_noise_distance
from protocols.research.data_dependent import total_label_rdp
from simulations.membership.attack import advantage_ceiling, area_ceiling
from tests.harness.pages import ROOT, section

PAGE = ROOT / "docs" / "explanation" / "mathematics.md"
SOURCES = [
    path
    for folder in "protocols runtime party coordinator guardian simulations conclave benchmarks tests".split()
    for path in sorted((ROOT / folder).rglob("*.py"))
]
# A page, a comma, and "section 4.1" or "sections 3 and 4"; also across the lines of a docstring or comment.
CITATION = re.compile(r"([\w-]+\.md)`?,[\s#]+sections?[\s#]+(\d+(?:\.\d+)?)(?:[\s#]+(?:and|to)[\s#]+(\d+(?:\.\d+)?))?")
# A page of the documentation is called by its path; other .md files are those that programs write.
PATH = re.compile(r"docs/[\w/-]+\.md")


def number(value: float) -> Float64[ndarray, " one"]:
    return np.array([float(value)])


def test_every_page_and_section_that_code_cites_exists() -> None:
    sections = 0
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        for name in PATH.findall(text):
            assert (ROOT / name).exists(), f"{path.relative_to(ROOT)} cites {name}"
        for name, *cited in CITATION.findall(text):
            (page,) = (ROOT / "docs").rglob(name)
            numbers = re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", page.read_text(encoding="utf-8"), re.MULTILINE)
            for one in filter(None, cited):
                assert one in numbers, f"{path.relative_to(ROOT)} cites section {one} of {name}"
                sections += 1
    assert sections >= 15


def test_the_sections_are_numbered_in_order_and_refer_to_each_other_by_numbers_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    numbers = re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE)
    assert numbers == sorted(numbers, key=lambda one: [int(part) for part in one.split(".")])
    own = re.sub(r"\]\([\w-]+\.md\),\s+sections? \d+(?: to \d+)?", "", text)
    for one, other in re.findall(r"sections?\s+(\d+(?:\.\d+)?)(?:\s+(?:and|to)\s+(\d+(?:\.\d+)?))?", own):
        assert {one, other or one} <= set(numbers)


def said(heading: str, *figures: str) -> None:
    """Each figure stands in the section."""
    text = " ".join(section(PAGE, heading).split())
    for figure in figures:
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", text), f"{heading}: {figure} is not said"


def test_the_conversions_give_the_stated_epsilons() -> None:
    sixteen, one = number(16), number(1)
    new = rdp_to_epsilon(one, sixteen, delta=1e-5)[0]
    old = rdp_to_epsilon_mironov(one, sixteen, delta=1e-5)[0]
    said("1.4 From RDP to (ε, δ)", f"{new:.3f}", f"{old:.3f}")
    orders = np.linspace(1.05, 200.0, 20_000)
    by_rdp = rdp_to_epsilon(orders * 0.5**2 / 2, orders, delta=1e-5).min()
    exact = gdp_epsilon(number(0.5), number(1e-5))[0]
    said("1.5 Gaussian differential privacy", f"{exact:.3f}", f"{by_rdp:.3f}")


def test_laplace_noise_costs_what_is_stated() -> None:
    low, high = laplace_histogram_rdp(number(1), np.array([2.0, 16.0]), gamma=0.05)[0]
    said("2.3 Laplace noise", f"{low:.5f}", f"{high:.4f}", f"{2 * 0.05 * 1:g}")


@pytest.mark.parametrize("d", [1 / 40, 0.25])
def test_labels_and_bits_cost_the_stated_share_of_the_gaussian_bound(d: float) -> None:
    order, shift = np.array([[16.0]]), np.array([[d]])
    gaussian = 16 * d * d
    label, two = (label_rdp(shift, order, classes=classes)[0, 0] / gaussian for classes in (10, 2))
    bit = threshold_rdp(shift, order)[0, 0] / (gaussian / 2)
    figures = f"{label:.3f} for the label, {two:.3f} with two classes and {bit:.3f} for the bit"
    said("3.6 Size", figures if d < 0.1 else f"{label:.3f}, {two:.3f} and {bit:.3f}")


def test_small_moves_cost_the_limits_that_are_stated() -> None:
    order, d = np.array([[2.0]]), 1e-4
    label = label_rdp(np.array([[d]]), order, classes=10)[0, 0] / (2 * d * d)
    bit = threshold_rdp(np.array([[d]]), order)[0, 0] / (d * d)
    assert bit == pytest.approx(2 / np.pi, abs=5e-4)
    said("3.6 Size", f"{label:.3f}", f"{2 / np.pi:.3f}")


def test_quadratic_costs_of_several_parties_add_up_as_stated() -> None:
    assert (np.sqrt([1.0] * 5).sum()) ** 2 == pytest.approx(5**2)
    said("4.3 A person known to several parties", f"{np.sqrt([1.0, 0.25]).sum() ** 2:g}")


def test_the_reading_of_a_meter_is_below_the_divergence() -> None:
    cost = np.log(2)
    # At order 2 e^D is a mean: half of the runs ask nothing, the others pay the cost.
    divergence = np.log(0.5 + 0.5 * np.exp(cost))
    assert cost / 2 < divergence
    said("5.2 The order is fixed beforehand", f"{cost / 2:.3f}", f"{divergence:.3f}")


@pytest.mark.parametrize(("d", "rate"), [(0.05, 0.5), (0.25, 0.1)])
def test_a_secret_coin_saves_what_is_stated(d: float, rate: float) -> None:
    share = sampled_label_gaussian_rdp(number(d), number(rate), number(16))[0, 0] / (16 * d * d)
    said("6.2 Secret coins: the histogram", f"{share:.3f}")


def test_integer_noise_costs_what_is_stated_above_real_noise() -> None:
    said("7.2 Labels and bits", f"{ripple(ROUNDING_SIGMA) * 1e34:.1f}·10⁻³⁴")
    real = label_rdp(np.array([[1 / 32]]), np.array([[16.0]]), classes=10)[0, 0]
    for sigma_units, digits in ((64, 1), (2560, 2)):
        units = np.array([sigma_units // 32])
        excess = lattice_label_rdp(units, number(16), sigma_units=sigma_units, classes=10)[0, 0] / real - 1
        said("7.2 Labels and bits", f"{100 * excess:.{digits}f} %")


def test_float64_noise_takes_the_stated_share_of_delta() -> None:
    label = float_noise_distance(sigma=40.0, classes=10, total_weight=250.0)
    bit = float_noise_distance(sigma=150.0, classes=1, total_weight=250.0)
    shares = [(1 + np.exp(epsilon)) * 10_000 * (label + bit) / 1e-5 for epsilon in (1, 3, 8)]
    said(
        "8. Floating point",
        f"{label:.1e}",
        f"{bit:.1e}",
        f"{100 * shares[0]:.3f} %",
        f"{100 * shares[1]:.2f} %",
        f"{100 * shares[2]:.0f} %",
    )


def test_data_dependent_costs_of_one_histogram_are_those_stated() -> None:
    counts, order = np.array([[200.0, 30.0, 20.0]]), number(14)
    bound = total_label_rdp(counts, order, sigma=40.0, sensitivity=number(1)).for_research()[0, 0]
    directions = query_rdp(counts, order, setting=QuerySetting(sigma=40.0), sensitivity=1).for_research()
    exact = max(directions.forward[0, 0], directions.reverse[0, 0])
    said("10.3 The divergence itself", f"{14 / 40**2:.5f}", f"{bound:.2e}", f"{exact:.2e}")


def test_the_ceilings_of_attacks_are_those_stated() -> None:
    epsilon, delta = number(1), number(1e-5)
    area, advantage = area_ceiling(epsilon=epsilon, delta=delta)[0], advantage_ceiling(epsilon=epsilon, delta=delta)[0]
    said("11. Exact laws that tests and audits use", f"{area:.3f}", f"{advantage:.3f}")


def test_the_readme_counts_the_mechanisms_and_the_accountants_that_there_are() -> None:
    counted = re.search(r"(\w+) mechanisms, (\w+) accountants that charge budgets", (ROOT / "README.md").read_text())
    assert counted is not None
    words = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert [words.index(each) for each in counted.groups()] == [len(MECHANISMS.own), len(ACCOUNTANTS.own)]
