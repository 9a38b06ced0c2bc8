"""A party's receipt of its neighbours' keys: of keys that it verified alone, and each under a key of its own."""

import numpy as np
import pytest

from protocols.errors import MalformedMessage
from tests.harness.sum_parties import Member, Sum, make_context

CONTEXT = make_context(12, 2, 1)
VALUES = np.arange(60).reshape(12, 5)


@pytest.fixture(scope="module")
def keys_of_the_others():
    """What party 4 is asked in step 2."""
    summed = Sum(CONTEXT, VALUES)
    summed.run()
    return summed.advertised.request(4)


def test_a_sharer_whose_keys_were_never_verified_is_not_masked_with(keys_of_the_others):
    """Else made-up keys, which step 2 did not look at, would let a coordinator take masks off."""
    present, keys, signatures, tags = (array.copy() for array in keys_of_the_others)
    present[0], keys[0] = 0, 7
    member = Member(CONTEXT, 4, VALUES[4])
    *_, receipt = member.answer("share", (present, keys, signatures, tags))
    everyone = np.ones(CONTEXT.parties, np.uint8)
    with pytest.raises(MalformedMessage, match=r"keys: those of 'hospital-00\d' are missing"):
        member.answer("mask", (everyone, present, keys, receipt))


def test_no_key_seals_two_receipts(keys_of_the_others):
    fewer = tuple(array.copy() for array in keys_of_the_others)
    fewer[0][0] = 0
    member = Member(CONTEXT, 4, VALUES[4])
    one, other = (member.answer("share", request)[-1] for request in (keys_of_the_others, fewer))
    # Both seal the same bytes from the second neighbour on: under one key they would be the same here too.
    assert (one[32:-16] != other[32:-16]).mean() > 0.9
