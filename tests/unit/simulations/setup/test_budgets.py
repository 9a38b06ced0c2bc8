import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from simulations.setup.budgets import parse_budgets
from tests.harness.refusals import refuses


def parse(text, parties=100, seed=0):
    return parse_budgets(text, parties=parties, delta=1e-5, seed=seed)


def test_shares_become_the_nearest_numbers_of_parties_in_an_order_from_the_seed():
    budgets = parse("1:0.34,2:0.43,3:0.23", 250)
    values, sizes = np.unique(budgets.epsilon, return_counts=True)
    assert values.tolist() == [1, 2, 3]
    assert sizes.tolist() == [85, 108, 57] or sizes.tolist() == [85, 107, 58]
    assert not (np.diff(budgets.epsilon) >= 0).all()
    np.testing.assert_array_equal(budgets.epsilon, parse("1:0.34,2:0.43,3:0.23", 250).epsilon)
    assert (budgets.epsilon != parse("1:0.34,2:0.43,3:0.23", 250, seed=1).epsilon).any()


@given(
    parties=st.integers(3, 500), raw=st.lists(st.integers(1, 20), min_size=1, max_size=3), seed=st.integers(0, 2**31)
)
def test_shares_always_add_up_to_the_parties(parties, raw, seed):
    shares = np.array(raw) / sum(raw)
    text = ",".join(f"{i + 1}:{share!r}" for i, share in enumerate(shares.tolist()))
    if (np.floor(shares * parties) == 0).any():
        # A budget may be left without a party; then it is said, and only then.
        try:
            budgets = parse(text, parties, seed)
        except InvalidInput:
            return
    budgets = parse(text, parties, seed)
    assert len(budgets.epsilon) == parties
    for i, share in enumerate(shares):
        assert abs((budgets.epsilon == i + 1).sum() - share * parties) < 1


def test_distributions_have_their_median_and_range():
    lognormal = parse("lognormal:2,0.5", 20_000).epsilon
    assert np.median(lognormal) == pytest.approx(2, rel=0.03)
    assert np.log(lognormal).std() == pytest.approx(0.5, rel=0.03)
    uniform = parse("uniform:1,4", 20_000).epsilon
    assert 1 <= uniform.min() < 1.01
    assert 3.99 < uniform.max() <= 4


def test_a_csv_names_parties_and_their_own_budgets(tmp_path):
    path = tmp_path / "budgets.csv"
    path.write_text("party,epsilon,delta\nnorth,1.5,1e-6\nsouth,2,1e-5\n")
    budgets = parse(str(path), 2)
    assert budgets.names == ("north", "south")
    assert budgets.epsilon.tolist() == [1.5, 2.0]
    assert budgets.delta.tolist() == [1e-6, 1e-5]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0", "epsilon is 0.0; allowed: finite and > 0"),
        ("-1", "epsilon is -1.0"),
        ("cheap", "'cheap' in budgets 'cheap' is not a number"),
        ("1:0.5,2:0.4", "adding up to 1"),
        ("1:0.5,2:-0.5,3:1", "each > 0"),
        ("1:0.999,2:0.001", "without any of 100 parties"),
        ("lognormal:2", "lognormal with two finite numbers"),
        ("lognormal:-2,1", "both > 0"),
        ("uniform:3,1", "0 < LOW < HIGH"),
        ("missing.csv", "missing.csv does not exist"),
    ],
)
def test_budgets_that_cannot_be_meant_are_refused(text, reason):
    with pytest.raises(InvalidInput, match=reason):
        parse(text)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("party,epsilon\na,1\n", ("columns party, epsilon, delta",)),
        ("party,epsilon,delta\na,1,1e-5\n", ("parties", 1, "--parties", 2)),
        ("party,epsilon,delta\na,1,1e-5\na,1,1e-5\n", ("names a party twice or not at all",)),
        ("party,epsilon,delta\na,x,1e-5\nb,1,1e-5\n", ("x",)),
        ("party,epsilon,delta\na,1,2\nb,1,1e-5\n", ("delta", "2.0", "(0, 1)")),
        ("", ("columns",)),
    ],
)
def test_a_budgets_file_that_is_wrong_says_where(tmp_path, content, reason):
    path = tmp_path / "budgets.csv"
    path.write_text(content)
    with refuses(InvalidInput, *reason):
        parse(str(path), 2)
