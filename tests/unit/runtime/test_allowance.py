"""So many at once, and more only as time goes by."""

from runtime.steady_clock import Allowance


def test_it_is_used_up_and_comes_back_one_by_one_and_never_above_what_is_allowed():
    made = Allowance(most=3, each_s=10.0)
    assert [made.take(100.0) for _ in range(5)] == [True, True, True, False, False]
    assert not made.take(109.0)
    assert made.take(110.0)
    assert not made.take(110.0)
    assert [made.take(1e6) for _ in range(5)] == [True, True, True, False, False]
