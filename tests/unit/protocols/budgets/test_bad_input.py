"""Out of range, every public conversion and cost refuses and names the range; none returns a number."""

import numpy as np
import pytest

from benchmarks import label_law
from protocols.bounds import gaussian, laplace, rdp
from protocols.budgets.accountant import ACCOUNTANTS, accountant
from protocols.budgets.filter import budget_filters
from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity, make_mechanism
from protocols.research.data_dependent import answer_probability
from tests.harness.refusals import refuses

ONE, TWO = np.ones(1), np.full(1, 2.0)
DELTA = np.array([1e-5])


def values(*numbers):
    return np.array(numbers, dtype=float)


def filters(**changes):
    sensitivity = changes.pop("sensitivity", 1.0)
    terms = {
        "accountant": accountant("gaussian"),
        "mechanism": make_mechanism("gnmax", view="label", sigma=40.0),
        "sensitivity": Sensitivity.always(values(sensitivity), delta_squared=2),
        "epsilon": TWO,
        "delta": DELTA,
        "view": "label",
        "classes": 10,
        "query_limit": 100,
        "total_weight": 100.0,
        "answer_rate": 1.0,
    }
    return budget_filters(**(terms | changes))


REFUSED = {
    "RDP below 0": lambda: rdp.rdp_to_epsilon(values(-0.1), TWO, delta=1e-5),
    "RDP that is no number": lambda: rdp.rdp_to_epsilon(values(np.nan), TWO, delta=1e-5),
    "delta above 1": lambda: rdp.rdp_to_epsilon(ONE, TWO, delta=2.0),
    "delta of 0": lambda: rdp.rdp_to_epsilon(ONE, TWO, delta=0.0),
    "an order below 1": lambda: rdp.rdp_to_epsilon(ONE, values(0.5), delta=1e-5),
    "delta of a curve": lambda: rdp.RdpCurve(TWO, ONE).to_epsilon(delta=1.5),
    "mu that is no number": lambda: gaussian.gdp_epsilon(values(np.nan), DELTA),
    "mu below 0": lambda: gaussian.gdp_epsilon(values(-1), DELTA),
    "mu's delta of 0": lambda: gaussian.gdp_mu(ONE, values(0)),
    "mu's delta above 1": lambda: gaussian.gdp_mu(ONE, values(1.5)),
    "mu's epsilon below 0": lambda: gaussian.gdp_mu(values(-1), DELTA),
    "mu of 0 in delta": lambda: gaussian.gdp_delta(values(0), ONE),
    "Laplace sensitivity below 0": lambda: laplace.laplace_histogram_rdp(values(-1), TWO, gamma=0.1),
    "Laplace order below 1": lambda: laplace.laplace_histogram_rdp(ONE, values(0.6), gamma=0.1),
    "a unit of negative votes": lambda: Sensitivity.always(values(-3), delta_squared=2),
    "a unit of no number of votes": lambda: Sensitivity.always(values(np.nan), delta_squared=2),
    "a rate above 1": lambda: Sensitivity(ONE, TWO, delta_squared=2),
    "a rate of 0": lambda: Sensitivity(ONE, values(0), delta_squared=2),
    "an answer rate below 0": lambda: filters(answer_rate=-1.0),
    "an answer probability of no number": lambda: answer_probability(
        values(np.nan), sigma_threshold=3.0, threshold=1.0
    ),
    "a tested count of no number": lambda: label_law.log_answered(values(np.nan), sigma_threshold=3.0, threshold=1.0),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_out_of_range_is_refused_with_the_range(what):
    with refuses(InvalidInput, "allowed"):
        REFUSED[what]()


@pytest.mark.parametrize("name", ACCOUNTANTS.own)
def test_no_accountant_converts_a_negative_spend(name):
    with refuses(InvalidInput, "allowed"):
        ACCOUNTANTS[name].to_epsilon(values(-1), TWO, DELTA)


@pytest.mark.parametrize("epsilon", [25.0, 1000.0])
def test_an_epsilon_that_float_noise_forbids_names_one_that_works(epsilon):
    with refuses(InvalidInput, "float64 noise") as refused:
        filters(epsilon=values(epsilon), total_weight=1e6)
    allowed = float(str(refused.value).rsplit(" ", 1)[1])
    assert 1 < allowed < epsilon
    filters(epsilon=values(allowed), total_weight=1e6)
