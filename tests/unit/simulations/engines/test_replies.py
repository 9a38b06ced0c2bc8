import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import errors
from protocols.errors import CannotVote, ConclaveError, EngineFailed, InvalidInput, Refused
from simulations.engines.engine import Replies, describe_error, rebuild_error
from tests.harness.refusals import refuses

ERROR_CLASSES = sorted(
    (
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, ConclaveError) and value is not Refused
    ),
    key=lambda error_class: error_class.__name__,
)


@given(st.permutations(["a", "b", "c", "d"]))
def test_replies_are_in_the_order_of_the_requests_whatever_the_order_of_arrival(arrivals: list[str]) -> None:
    replies = Replies(["a", "b", "c", "d"], None)
    for party in arrivals:
        replies.add(party, party.encode())
    assert list(replies.complete().items()) == [("a", b"a"), ("b", b"b"), ("c", b"c"), ("d", b"d")]


def test_a_reply_of_a_stranger_and_a_second_reply_are_failures_of_the_host() -> None:
    replies = Replies(["a"], None)
    with refuses(EngineFailed, "z"):
        replies.add("z", b"")
    replies.add("a", b"")
    with refuses(EngineFailed, "a"):
        replies.add("a", b"")


@pytest.mark.parametrize("error_class", ERROR_CLASSES)
@given(message=st.text())
def test_every_error_of_the_tree_survives_the_journey(error_class: type[ConclaveError], message: str) -> None:
    rebuilt = rebuild_error(describe_error(error_class(message)))
    assert type(rebuilt) is error_class
    assert (rebuilt.why if isinstance(rebuilt, CannotVote) else str(rebuilt)) == message


@given(code=st.text(), message=st.text())
def test_a_refusal_keeps_its_code(code: str, message: str) -> None:
    refusal = Refused(code, message)
    rebuilt = rebuild_error(describe_error(refusal))
    assert isinstance(rebuilt, Refused)
    assert (rebuilt.code, str(rebuilt)) == (code, str(refusal))


def test_an_error_derived_elsewhere_arrives_as_the_nearest_of_the_tree() -> None:
    class Local(InvalidInput):
        pass

    rebuilt = rebuild_error(describe_error(Local("x is 1; allowed: 0")))
    assert type(rebuilt) is InvalidInput
