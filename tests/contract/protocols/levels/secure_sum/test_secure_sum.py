"""The sum comes out whoever drops out; masks cancel; too few parties open nothing."""

import json

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.edwards import PRIME, encoded, lifted, multiple_of_base, private_key, projected, total
from protocols.crypto.masks import agreed
from protocols.levels.secure_sum.aggregation import _agreement, open_sum
from protocols.levels.secure_sum.collecting import QuorumLost
from tests.harness.masked_sum_vectors import FILE, vector
from tests.harness.sum_parties import USUAL_STEPS, Sum, make_context


def random_values(context, rng):
    bound = 2 ** (context.bits - 1) // (2 * context.parties)
    return rng.integers(-bound, bound, (context.parties, context.cells), dtype=np.int64)


@st.composite
def sums(draw):
    dropouts, colluders = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    fewest = max(2 * dropouts + colluders + 1, dropouts + colluders + 2)
    parties = draw(st.integers(fewest, 16))
    terms = {
        "cells": draw(st.integers(1, 6)), "bits": draw(st.sampled_from([32, 64])), "batch": draw(st.integers(0, 2**64))
    }  # fmt: skip
    gone = draw(st.permutations(range(parties)))[: draw(st.integers(0, dropouts))]
    absent = {step: [] for step in USUAL_STEPS}
    for index in gone:
        absent[draw(st.sampled_from(USUAL_STEPS))].append(index)
    return (parties, dropouts, colluders), terms, absent, draw(st.integers(0, 2**32))


@given(case=sums())
@settings(max_examples=12)
def test_the_sum_is_that_of_the_survivors_for_any_drop_outs_within_the_bound(case) -> None:
    sizes, terms, absent, seed = case
    context = make_context(*sizes, **terms)
    values = random_values(context, np.random.default_rng(seed))
    running = Sum(context, values, seed=seed, absent=absent)
    opened = running.run()
    gone = sorted(index for step in ("advertise", "share", "check", "mask") for index in absent[step])
    expected = np.delete(values, gone, axis=0).sum(axis=0)
    np.testing.assert_array_equal(opened.sums, expected)
    assert not running.errors
    assert opened.left_out == {context.members[index]: "absent" for index in gone}
    late = [index for step in ("agree", "unmask") for index in absent[step]]
    assert opened.faults == {context.members[index]: "absent" for index in late}


@pytest.mark.parametrize("step", USUAL_STEPS)
def test_one_drop_out_too_many_opens_nothing(step) -> None:
    context = make_context(9, 2, 2)
    values = random_values(context, np.random.default_rng(0))
    left = context.fewest if step in ("advertise", "share", "check", "mask") else context.quorum
    absent = {step: range(context.parties - left + 1)}
    if step == "unmask":
        # All who hold shares of party 0, but too few, are there; itself it is not.
        holders = context.graph.neighbours(0).tolist()
        absent = {step: [0, *holders[: len(holders) - context.threshold + 1]]}
    with pytest.raises(QuorumLost) as lost:
        Sum(context, values, absent=absent).run()
    assert lost.value.left_out


def test_a_coordinator_that_asks_the_absent_again_goes_on() -> None:
    context = make_context(9, 2, 2)
    values = random_values(context, np.random.default_rng(2))
    holders = context.graph.neighbours(0).tolist()
    running = Sum(context, values, absent={"unmask": [0, *holders[: len(holders) - context.threshold + 1]]})
    with pytest.raises(QuorumLost):
        running.run()
    running.absent = {}
    again = running.ask("unmask", running.agreed.present, running.agreed.request)
    np.testing.assert_array_equal(open_sum(running.agreed, again).sums, values.sum(axis=0))


def test_a_sum_of_60_parties_with_12_drop_outs_at_all_steps_is_right() -> None:
    context = make_context(60, 12, 5, cells=20)
    values = random_values(context, np.random.default_rng(1))
    absent = {step: range(2 * place, 2 * place + 2) for place, step in enumerate(USUAL_STEPS)}
    opened = Sum(context, values, absent=absent).run()
    np.testing.assert_array_equal(opened.sums, values[8:].sum(axis=0))


def test_the_members_send_what_the_vector_has() -> None:
    assert vector() == json.loads(FILE.read_text())


def test_a_key_that_no_private_key_has_agrees_as_it_does_with_keys_beside_the_subgroup() -> None:
    """X25519 does not see a component of small order; neither does the coordinator, with what it opened."""
    scalar = next(number for number in range(2, 100) if private_key(number) is None)
    other = X25519PrivateKey.from_private_bytes(b"other".ljust(32))
    point = lifted(other.public_key().public_bytes_raw())
    beside = projected(total(point, encoded(PRIME - 1)))
    assert beside != other.public_key().public_bytes_raw()
    theirs = agreed(other, projected(multiple_of_base(scalar)))
    assert _agreement(scalar)(other.public_key().public_bytes_raw()) == _agreement(scalar)(beside) == theirs
