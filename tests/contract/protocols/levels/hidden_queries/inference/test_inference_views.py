"""What each role sees is distributed independently of the others' secrets.

A batch holds many copies of one query, whose masks are independent: many samples of what a role sees of one. Two
batches that differ in a secret are compared cell by cell (two bits of each byte of each number that arrives, of each
opened number, and of the differences of neighbours), by a chi-squared test of homogeneity. The least p-value times
the number of cells is held against 1e-9: false alarms below 1e-9 a test. Seeds are fixed, so that an alarm is a change.
"""

import numpy as np
import pytest
from scipy.stats import chi2

from protocols.crypto.prg import Stream
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.comparison import drawn
from protocols.levels.hidden_queries.inference.model import Dense, Model, ReLU, plain_inference, quantise
from tests.harness.inference_parties import parties, run
from tests.harness.seeded import seeded_source

ALARM, COPIES = 1e-9, 4000


def two_layers(first, last):
    layers = (Dense(np.array(first), np.zeros(len(first))), ReLU(), Dense(np.array(last), np.zeros(len(last))))
    return quantise(Model((2,), layers), Precision())


# The same function by other weights: hidden units exchanged, and one scaled against the other.
FIRST = two_layers([[1.0, -1.0], [-2.0, 0.5]], [[1.0, 0.0], [0.0, 1.0], [0.25, 0.25]])
SECOND = two_layers([[-1.0, 0.25], [2.0, -2.0]], [[0.0, 0.5], [2.0, 0.0], [0.5, 0.125]])
INPUTS = np.array([1.0, -1.0]), np.array([-1.0, 0.125])


def per_query(array, queries):
    """Whatever arrived, as bytes of each query; None for what is of no single query (weights, seeds)."""
    if array.ndim == 2 and array.shape[1] != queries and array.shape[0] != queries:
        for numbers in (1, 2, 3):
            if array.shape[1] == -(-numbers * queries // 8):
                bits = np.unpackbits(array, axis=1, count=numbers * queries)
                return bits.reshape(len(array), queries, numbers).transpose(1, 0, 2).reshape(queries, -1)
        return None
    if array.ndim == 3:
        array = np.ascontiguousarray(array.transpose(1, 0, 2))
    elif array.ndim == 2 and array.shape[0] != queries:
        array = np.ascontiguousarray(array.reshape(len(array), queries, -1).transpose(1, 0, 2))
    if array.size % queries:
        return None
    return np.ascontiguousarray(array).reshape(queries, -1).view(np.uint8)


def seen(arrays, queries):
    """One row per query: two bits of each byte, twice, and of differences of neighbours."""
    columns = [found for array in arrays if (found := per_query(array, queries)) is not None]
    octets = np.concatenate(columns, axis=1)
    octets = np.concatenate([octets, octets[:, 1:] - octets[:, :-1]], axis=1)
    return np.concatenate([octets & 3, octets >> 6], axis=1)


def alarm(left, right):
    """The least p-value of homogeneity over all columns, times their number."""
    worst, columns = 1.0, left.shape[1]
    counts = np.array([[(side == cell).sum(axis=0) for cell in range(4)] for side in (left, right)], dtype=float)
    totals = counts.sum(axis=0)
    expected = totals / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        terms = np.where(expected > 0, (counts - expected) ** 2 / expected, 0.0).sum(axis=(0, 1))
    freedom = np.maximum((totals > 0).sum(axis=0) - 1, 1)
    worst = chi2.sf(terms, freedom).min()
    return worst * columns


def view(transcript, own, received):
    """What arrived (request 1, reply 2 of an exchange), what it opens with what was sent, each without own masks."""
    found = []
    for exchange in transcript[1:]:
        arrived, sent = exchange[received], exchange[3 - received]
        values = [*arrived, *(a + b for a in arrived for b in sent if a.shape == b.shape)]
        values += [a ^ b for a in arrived for b in sent if a.shape == b.shape]
        found += values
        found += [
            value - mask for value in values for mask in own if (value.shape, value.dtype) == (mask.shape, mask.dtype)
        ]
        found += [
            value ^ mask for value in values for mask in own if (value.shape, value.dtype) == (mask.shape, mask.dtype)
        ]
    return found


def own_arrays(seed, plan, pieces):
    """What a role's seed gives it."""
    stream = Stream(seed.tobytes())
    return [array for step in (*plan.steps, plan.vote) for array in drawn(stream, pieces(step))]


def batch(model, row, key):
    return parties(model, np.tile(row, (COPIES, 1)), key)


def answerer_sees(row, key):
    querier, answerer = batch(FIRST, row, key)
    own = own_arrays(answerer._dealt[0], answerer._plan, answerer._plan.answerers)
    return seen([*answerer._dealt[1:], *view(run(querier, answerer), own, 1)], COPIES)


def querier_sees(model, key):
    querier, answerer = batch(model, INPUTS[0], key)
    own = own_arrays(querier._seed, querier._plan, querier._plan.queriers)
    return seen(view(run(querier, answerer), own, 2), COPIES)


def test_the_pairs_are_adversarial() -> None:
    rows = np.random.default_rng(1).uniform(-1, 1, (500, 2))
    assert (plain_inference(FIRST, rows) == plain_inference(SECOND, rows)).all()
    assert len(set(plain_inference(FIRST, np.array(INPUTS)).tolist())) == 2


def test_the_answering_party_sees_the_same_whatever_the_input() -> None:
    first, second = (answerer_sees(row, key) for key, row in enumerate(INPUTS, 10))
    assert first.shape[1] > 1000
    assert alarm(first, second) > ALARM


def test_the_querying_party_sees_the_same_whatever_the_weights_of_equal_models() -> None:
    first, second = (querier_sees(model, key) for key, model in enumerate((FIRST, SECOND), 20))
    assert first.shape[1] > 200
    assert alarm(first, second) > ALARM


def test_masked_weights_are_uniform_whatever_the_weights() -> None:
    """Many batches of one query: the one message that is of no single query."""
    views = []
    for key, model in enumerate((FIRST, SECOND)):
        rows = []
        for number in range(100):
            querier, answerer = parties(model, INPUTS[0][None], key, number)
            rows.append(np.concatenate([array.reshape(-1) for array in answerer.step(*querier.start())]))
        octets = np.array(rows).view(np.uint8)
        views.append(np.concatenate([octets & 3, octets >> 6], axis=1))
    assert alarm(*views) > ALARM


class Unmasked(Stream):
    """A stream of zeros: what a broken generator would give."""

    def _next(self, shape, dtype):
        return np.zeros(shape, dtype=dtype)


@pytest.mark.parametrize("side", ["querier", "answerer"])
def test_without_masks_the_same_test_raises_the_alarm(monkeypatch, side) -> None:
    """Positive control: the other side's seed gives zeros, for it and for the dealer."""
    seeds: list[bytes] = []  # in the order of the deals: each time the querier's, then the answerer's

    def stream(seed: bytes) -> Stream:
        if seed not in seeds:
            seeds.append(seed)
        others = seeds.index(seed) % 2 == (side == "querier")
        return (Unmasked if others else Stream)(seed)

    monkeypatch.setattr("protocols.levels.hidden_queries.inference.computing.Stream", stream)
    if side == "querier":
        first, second = (querier_sees(model, key) for key, model in enumerate((FIRST, SECOND), 20))
    else:
        first, second = (answerer_sees(row, key) for key, row in enumerate(INPUTS, 10))
    assert alarm(first, second) < ALARM


def test_the_guardian_gets_the_same_seed_whatever_input_and_model() -> None:
    seeds = set()
    for model in (FIRST, SECOND):
        for row in INPUTS:
            querier, answerer = parties(model, row[None], 3)
            run(querier, answerer)
            (share,) = answerer.guardian_share.arrays()
            seeds.add(share.tobytes())
    assert seeds == {seeded_source(3, 2)(32)[:16]}
