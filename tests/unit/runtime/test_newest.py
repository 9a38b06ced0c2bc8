import threading

import pytest

from runtime.loopback import Newest


def test_who_asks_gets_a_new_value_each_time():
    counted = iter(range(9))
    newest = Newest(lambda: next(counted), patience_s=300)
    assert [newest() for _ in range(3)] == [0, 1, 2]


def test_a_value_that_takes_long_is_not_waited_for_once_there_is_one_before_it():
    go, values = threading.Event(), iter(["first", "second"])

    def make():
        value = next(values)
        if value == "second":
            go.wait(300)
        return value

    newest = Newest(make, patience_s=0.0)
    assert newest() == newest() == newest() == "first"
    go.set()
    newest._making.join()
    assert newest._made == ["second"]


def test_what_goes_wrong_is_raised_where_the_value_is_asked_for():
    outcomes = iter([OSError("no disk"), "well"])

    def make():
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    newest = Newest(make, patience_s=300)
    with pytest.raises(OSError, match="no disk"):
        newest()
    assert newest() == "well"
