"""A study asks no more queries than its limit in its life, whatever numbers a coordinator gives them."""

import numpy as np
import pytest

from party.data.queries import check_batch
from party.party import Party
from protocols.errors import MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.study.queries import QueryBatch
from protocols.wire import wire_pb2
from protocols.wire.messages import Refusal, VoteReply, VoteRequest, decode, encode
from tests.harness.amounts import nano
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import make_study

LIMIT = 60
STUDY = make_study([8.0, 8.0], threshold=1.0, queries=LIMIT, batch_limit=20)
LOWEST = -(2**63)


def open_party(ledger: Ledger) -> Party:
    def voter(batch):
        return np.zeros((1, len(batch.ids)), dtype=np.int64)

    return Party("p0", study=STUDY, ledger=ledger, voter=voter, coins_from=None)


def on_the_wire(number: int, ids: list[int]) -> bytes:
    """A request with any ids, as a coordinator may write it that does not go by this software."""
    honest = VoteRequest(STUDY.digest, b"run", QueryBatch(number, np.arange(len(ids)), np.zeros((len(ids), 2), "<f4")))
    message = wire_pb2.Envelope.FromString(encode(honest))
    message.vote_request.ids.data = np.array(ids, dtype="<i8").tobytes()
    return message.SerializeToString()


def unchecked(number: int, ids: list[int]) -> QueryBatch:
    """A batch as if no decoder had looked at it."""
    batch = object.__new__(QueryBatch)
    for name, value in (("number", number), ("ids", np.array(ids)), ("inputs", np.zeros((len(ids), 2), np.float32))):
        object.__setattr__(batch, name, value)
    return batch


def answered(ledger: Ledger) -> int:
    number, queries = 0, 0
    while ledger.stored(number) is not None:
        queries += len(ledger.queries(number))
        number += 1
    return queries


def test_ids_whose_differences_wrap_bring_no_query_beyond_the_limit():
    """From k to -2**63 + k - 1 the difference wraps to 2**63 - 1, and every id after it is below the limit."""
    for number in range(LIMIT - 1):
        first = number + 1
        others = range(-(10**6) + 18 * number, -(10**6) + 18 * (number + 1))
        with pytest.raises(MalformedMessage):
            decode(on_the_wire(number, [first, LOWEST + first - 1, *others]))


def test_a_request_with_such_ids_is_malformed_and_one_with_other_ids_is_answered():
    for ids in ([5, LOWEST + 4], [5, LOWEST + 4, LOWEST + 5], [0, 2**62, LOWEST + 1], [-1], [2**63 - 1]):
        with pytest.raises(MalformedMessage):
            decode(on_the_wire(0, ids))
    with Ledger(":memory:") as ledger:
        assert isinstance(open_party(ledger).handle(decode(on_the_wire(0, [0, 1]))), VoteReply)
        assert answered(ledger) == 2


@pytest.mark.parametrize("ids", [[5, LOWEST + 4], [-1, 0], [LIMIT], [0, 2**40]])
def test_a_batch_that_no_decoder_looked_at_is_refused_by_the_party_and_by_the_ledger(ids):
    with Ledger(":memory:") as ledger:
        party = open_party(ledger)
        reply = party.handle(VoteRequest(STUDY.digest, b"run", unchecked(0, ids)))
        assert isinstance(reply, Refusal)
        assert reply.code == "query_limit"
        with refused_for("query_limit"):
            ledger.reserve(0, bytes(32), {"p0": 0}, b"", queries=ids, limit=LIMIT)
        assert ledger.stored(0) is None


@pytest.mark.parametrize("ids", [[5, LOWEST + 4], [-1, 0], [LIMIT], [0, 2**40], [2, 1]])
def test_a_query_that_is_not_in_the_pool_is_refused_and_ends_nothing(ids):
    pool = np.zeros((LIMIT, 2), np.float32)
    pool[:3] += np.arange(3)[:, None]
    with refused_for("other_pool"):
        check_batch(unchecked(0, ids), pool)


def test_a_ledgers_life_has_no_more_queries_than_the_limit():
    with Ledger(":memory:") as ledger:
        ledger.open_accounts(nano({"p0": 10}))
        ledger.reserve(0, b"a" * 32, {"p0": 1}, b"", queries=range(LIMIT - 1), limit=LIMIT)
        with refuses(Refused, 2, LIMIT - 1, LIMIT):
            ledger.reserve(1, b"b" * 32, {"p0": 1}, b"", queries=[LIMIT - 1, LIMIT - 1], limit=LIMIT)
        ledger.reserve(1, b"b" * 32, {"p0": 1}, b"", queries=[LIMIT - 1], limit=LIMIT)
        with refused_for("query_limit"):
            ledger.reserve(2, b"c" * 32, {"p0": 1}, b"", queries=[0], limit=LIMIT)
        assert ledger.balance("p0").reserved == 2
