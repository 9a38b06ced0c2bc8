"""Persons known to several parties: against exact enumerations of who takes part, and against exact divergences."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from protocols.bounds.gaussian import gdp_epsilon
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.budgets.accountant import accountant
from protocols.budgets.filter import NANO, budget_filters
from protocols.budgets.guarantee import Accounting, known_to, worst_known_to
from protocols.errors import InvalidInput
from protocols.mechanisms import Sensitivity, make_mechanism
from protocols.study.levels import Clear
from protocols.study.overlap import Overlap
from protocols.study.record_study import ANY_SIGNED, RecordVotesPlan, record_study
from protocols.study.several_hospitals import any_hospitals, these_hospitals
from tests.harness.refusals import refuses

GNMAX = make_mechanism("gnmax", sigma=20.0, view="label")
CONFIDENT = make_mechanism("confident_gnmax", sigma=20.0, sigma_threshold=50.0, threshold=10.0, view="label")
LAPLACE = make_mechanism("lnmax", gamma=0.05, view="label")
DELTA = 1e-5


def accounting(
    epsilon, votes, *, mechanism=CONFIDENT, account="label_only", classes=10, noise_distance=0.0, delta=DELTA
):
    epsilon, votes = np.asarray(epsilon, float), np.asarray(votes, float)
    budgets = budget_filters(
        accountant=accountant(account),
        mechanism=mechanism,
        sensitivity=Sensitivity.always(votes, delta_squared=2),
        epsilon=epsilon,
        delta=np.full(len(epsilon), delta),
        view="label",
        classes=classes,
        query_limit=10,
        total_weight=float(votes.sum()),
        answer_rate=1.0,
    )
    return Accounting(
        budgets=budgets,
        mechanism=mechanism,
        votes=votes,
        delta_squared=2,
        apart=False,
        view="label",
        classes=classes,
        noise_distance=noise_distance,
    )


def alone(count):
    return [[position] for position in range(count)]


CASES = [("label_only", CONFIDENT), ("gaussian", CONFIDENT), ("gaussian_dp", GNMAX), ("laplace", LAPLACE)]
rosters = st.lists(st.tuples(st.floats(0.3, 4), st.floats(0.2, 8)), min_size=1, max_size=5)


@pytest.mark.parametrize(("account", "mechanism"), CASES)
@settings(max_examples=8)
@given(epsilon=st.floats(0.3, 6), votes=st.floats(0.3, 5))
def test_of_one_hospital_it_is_its_own_epsilon(account, mechanism, epsilon, votes):
    made = accounting([epsilon], [votes], mechanism=mechanism, account=account)
    guarantee = known_to(made, [[0]], delta=DELTA)
    own = made.budgets.epsilon_guaranteed[0]
    # A little of its delta was set aside for float64 noise; here there is none.
    assert own * (1 - 1e-4) <= guarantee.epsilon <= own * (1 + 1e-9)
    (worst,) = worst_known_to(made, [[0]], delta=DELTA)
    assert worst.epsilon == guarantee.epsilon


@pytest.mark.parametrize(("account", "mechanism"), CASES)
@settings(max_examples=6)
@given(roster=rosters)
def test_one_more_hospital_never_lowers_it_and_the_worst_choice_bounds_every_choice(account, mechanism, roster):
    made = accounting([e for e, _ in roster], [v for _, v in roster], mechanism=mechanism, account=account)
    worst = worst_known_to(made, alone(len(roster)), delta=DELTA)
    chosen = {}
    for size in range(1, len(roster) + 1):
        for members in itertools.combinations(range(len(roster)), size):
            chosen[members] = known_to(made, [[each] for each in members], delta=DELTA).epsilon
            assert chosen[members] <= worst[size - 1].epsilon * (1 + 1e-9)
            for left_out in members if size > 1 else ():
                fewer = tuple(each for each in members if each != left_out)
                assert chosen[fewer] <= chosen[members] * (1 + 1e-4)


def price_at(made, votes, position):
    """Costs of a refused and of an answered query at one order of the accountant, for a unit of these votes."""
    cost = made.budgets.accountant.query_cost(
        made.mechanism, Sensitivity.always(np.array([votes]), delta_squared=2), view="label", classes=made.classes
    )
    return cost.ask[0, position], (cost.ask + cost.answer)[0, position]


def worst_plan(made, position):
    """The largest cost at one order over all ways to take part, be absent and be refused, by linear programming."""
    count = len(made.votes)
    gain, used = [], []
    for members in itertools.product([0, 1], repeat=count):
        if any(members):
            refused, answered = price_at(made, float(made.votes @ np.array(members)), position)
            for each, own in ((refused, made.budgets.ask), (answered, made.budgets.ask + made.budgets.answer)):
                gain.append(-each)
                used.append(np.array(members) * own)
    solved = linprog(gain, A_ub=np.array(used).T, b_ub=made.budgets.cap / NANO, method="highs")
    return -solved.fun


@settings(max_examples=8)
@given(roster=st.lists(st.tuples(st.floats(0.5, 3), st.floats(0.3, 6)), min_size=2, max_size=4))
@pytest.mark.parametrize(("account", "mechanism"), CASES)
def test_no_plan_of_who_takes_part_and_what_is_refused_costs_more(account, mechanism, roster):
    made = accounting([e for e, _ in roster], [v for _, v in roster], mechanism=mechanism, account=account)
    guarantee = known_to(made, alone(len(roster)), delta=DELTA)
    orders = made.budgets.accountant.orders
    position = 0 if math.isnan(guarantee.order) else int(np.flatnonzero(orders == guarantee.order)[0])
    exact = worst_plan(made, position)
    assert guarantee.spend >= exact * (1 - 1e-9)
    assert guarantee.spend <= exact * 1.05


def exact_bit(shift, order):
    """sup over g of the Renyi divergence between Bernoulli(Phi(g)) and Bernoulli(Phi(g + shift)), by search."""

    def divergence(g):
        p, q = mpmath.ncdf(g), mpmath.ncdf(g + shift)
        total = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
        return mpmath.log(total) / (order - 1)

    return max(float(divergence(sign * g)) for g in np.linspace(0, 6, 121) for sign in (1, -1))


@pytest.mark.parametrize("caps", [(1.0, 1.0), (0.6, 2.0)])
def test_it_is_never_below_the_exact_divergence_of_two_classes(caps):
    votes = [1.5, 4.0]
    made = accounting(caps, votes, mechanism=GNMAX, classes=2)
    guarantee = known_to(made, alone(2), delta=DELTA)
    full = made.budgets.ask + made.budgets.answer
    affords = made.budgets.cap / (NANO * full)
    both, more = affords.min(), affords.max() - affords.min()
    longer = int(affords.argmax())
    with mpmath.workdps(30):
        together = exact_bit(math.sqrt(2) * sum(votes) / 20.0, guarantee.order)
        single = exact_bit(math.sqrt(2) * votes[longer] / 20.0, guarantee.order)
    exact = both * together + more * single
    assert exact <= guarantee.spend <= exact * 1.01
    assert guarantee.epsilon >= rdp_to_epsilon(np.array([exact]), np.array([guarantee.order]), delta=DELTA)[0]


def test_float_noise_raises_epsilon_and_at_last_leaves_none():
    ideal = known_to(accounting([2.0, 2.0], [2.0, 2.0]), alone(2), delta=DELTA)
    distance = 1e-9
    real = known_to(accounting([2.0, 2.0], [2.0, 2.0], noise_distance=distance), alone(2), delta=DELTA)
    left = DELTA - (1 + math.exp(real.epsilon)) * distance
    assert real.epsilon > ideal.epsilon
    assert rdp_to_epsilon(np.array([real.spend]), np.array([real.order]), delta=left)[0] <= real.epsilon
    hopeless = known_to(accounting([2.0, 2.0], [2.0, 2.0], noise_distance=1e-6), alone(2), delta=DELTA)
    assert hopeless.epsilon == math.inf


def test_a_hospital_with_two_seats_counts_with_the_worse_of_them():
    made = accounting([1.0, 2.0, 1.0], [2.0, 3.0, 2.0])
    both = known_to(made, [[0, 1], [2]], delta=DELTA).epsilon
    assert both >= known_to(made, [[1], [2]], delta=DELTA).epsilon
    assert both < known_to(made, [[0], [1], [2]], delta=DELTA).epsilon


@pytest.mark.parametrize(
    ("hospitals", "delta"), [([], DELTA), ([[]], DELTA), ([[0], [0]], DELTA), ([[5]], DELTA), ([[0]], 0.0), ([[0]], 1)]
)
def test_bad_input_is_named(hospitals, delta):
    with refuses(InvalidInput, "allowed"):
        known_to(accounting([1.0, 1.0], [1.0, 1.0]), hospitals, delta=float(delta))


def vectors(weight, *, signed):
    """All that one unit can send: two whole numbers of a norm of at most the weight."""
    span = range(-weight if signed else 0, weight + 1)
    return np.array([each for each in itertools.product(span, span) if each[0] ** 2 + each[1] ** 2 <= weight**2])


def farthest(sets, *, apart):
    """The largest squared distance of two neighbours: one vector replaced by another at each hospital of a patient."""
    moves = [(each[:, None] - each[None]).reshape(-1, 2) for each in sets]
    moves = [np.unique(each, axis=0) for each in moves]
    if apart:
        return sum(int((each**2).sum(axis=1).max()) for each in moves)
    total = moves[0]
    for each in moves[1:]:
        total = np.unique((total[:, None] + each[None]).reshape(-1, 2), axis=0)
    return int((total**2).sum(axis=1).max())


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("declared", [False, True])
def test_a_seat_is_charged_for_the_farthest_move_of_a_patient_of_up_to_k_hospitals(signed, apart, declared):
    """Every choice of hospitals, and every integer vector of a unit at each: the charge is a bound, and nearly met."""
    weights, delta_squared = (6, 3, 2), 4 if signed else 2
    for most in (1, 2, 3):
        charged = Overlap(most=most, declared=declared, apart=apart).moved(np.array(weights, float), ("a", "b", "c"))
        reached = np.zeros(3)
        for size in range(1, most + 1):
            for chosen in itertools.combinations(range(3), size):
                parts = size if declared else 1
                sets = [vectors(weights[at] // parts, signed=signed) for at in chosen]
                move = farthest(sets, apart=apart)
                for at in chosen:
                    assert move <= delta_squared * charged[at] ** 2 + 1e-9
                    reached[at] = max(reached[at], move / (delta_squared * charged[at] ** 2))
        assert (reached > (0.4 if declared else 0.99)).all()  # 3 // 2 and 2 // 3 lose a half and all


def test_two_hospitals_of_equal_weight_cost_what_their_summed_move_costs():
    """Epsilon 1 for one hospital: mu of it, doubled where sums are added, times sqrt 2 where they are apart."""
    accountant_of_one = accountant("gaussian_dp")
    spend = float(accountant_of_one.affords(np.array([1.0]), np.array([DELTA]))[0, 0])
    for apart, epsilon in ((False, 2.155), (True, 1.465)):
        (moved, _) = Overlap(most=2, declared=False, apart=apart).moved(np.ones(2), ("a", "b"))
        found = gdp_epsilon(np.array([moved * math.sqrt(spend)]), np.array([DELTA]))
        assert float(found[0]) == pytest.approx(epsilon, abs=1e-3)


def test_patients_of_one_hospital_speak_in_one_of_its_groups():
    charged = Overlap(most=2, declared=False, apart=False).moved(np.array([3.0, 1.0, 2.0]), ("a", "a", "b"))
    assert charged.tolist() == [5.0, 3.0, 5.0]


@pytest.mark.parametrize("overlap", ["unknown", "declared"])
def test_every_hospitals_epsilon_holds_for_a_patient_of_as_many_hospitals_as_it_is_charged_for(overlap):
    one, two = (
        record_study(
            RecordVotesPlan(
                name="k", classes=2, unit="patient", population=100, queries=ANY_SIGNED, rule="exhaustive",
                level=Clear(units=2**16), quorum=3, hospitals_per_patient=most, overlap=how,
            ),
            names=("a", "b", "c"), epsilon=np.array([1.0, 1.0, 2.0]), delta=np.full(3, DELTA),
        )
        for most, how in ((1, "unknown"), (2, overlap))
    )  # fmt: skip
    assert (two.budgets.epsilon_guaranteed <= np.array([1.0, 1.0, 2.0]) + 1e-9).all()
    for study, most in ((one, 1), (two, 2)):
        for pair in itertools.combinations(range(3), most):
            names = [study.roster[at].party for at in pair]
            least = min(study.budgets.epsilon_guaranteed[list(pair)])
            assert these_hospitals(study, names).epsilon <= least + 1e-6
        every = [each.epsilon for each in any_hospitals(study)]
        assert every[most - 1] <= 2.0 + 1e-6
        assert every[most] > 1.3 * every[most - 1]
    noise = two.mechanism.label_sigma / one.mechanism.label_sigma
    assert noise < 1.5 if overlap == "declared" else noise > 2
