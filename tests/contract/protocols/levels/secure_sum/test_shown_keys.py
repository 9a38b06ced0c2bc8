"""A malicious coordinator, alone, has members accuse honest dealers, to see the keys of what one honest member dealt.

Each attack gives the target dealings that its neighbours signed, and that do not open for it: dealt while it was said
to be absent, or under keys of a batch secret that one side has forgotten since. With the keys that it then shows, the
target's own dealing opens, and with that its votes.
"""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from protocols.crypto.edwards import private_key, projected
from protocols.crypto.masks import MaskSum, agreed
from protocols.crypto.shamir import reconstruct
from protocols.errors import MalformedMessage
from protocols.levels.secure_sum.collecting import collect_keys
from protocols.levels.secure_sum.dealing import pair_mask_key, scalars, sealing_keys, self_mask_key, unsealed
from tests.harness.sum_parties import Member, make_context, verify

CONTEXT = make_context(9, 2, 1, cells=7)
VALUES = np.arange(63, dtype=np.int64).reshape(9, 7)
EVERYONE = np.ones(CONTEXT.parties, dtype=bool)
TARGET = 3
NEIGHBOURS = CONTEXT.graph.neighbours(TARGET).tolist()


def members(seeds):
    return [Member(CONTEXT, index, VALUES[index], seeds.get(index, 0)) for index in range(CONTEXT.parties)]


def advertised(asked):
    return collect_keys(CONTEXT, {each.index: each.answer("advertise", ()) for each in asked}, verify=verify)


def dealings(asked, keys, absent=()):
    """What these members deal, if some are said to be absent."""
    replies = {}
    for each in asked:
        request = [array.copy() for array in keys.request(each.index)]
        gone = np.isin(CONTEXT.graph.neighbours(each.index), absent)
        for array in request:
            array[gone] = 0
        replies[each.index] = each.answer("share", tuple(request))
    return replies


def shown(target, keys, receipt, dealt):
    """What the target answers if it is told that these dealings are disputed."""
    blinding, sealed, hashes, answers, signatures = (
        np.stack([dealt[who][place] for who in NEIGHBOURS]) for place in range(5)
    )
    disputed = np.ones(len(NEIGHBOURS), dtype=np.uint8)
    of_neighbours = keys.keys.of_neighbours(TARGET)
    return target.answer("accuse", (*of_neighbours, receipt, disputed, blinding, answers, signatures, sealed, hashes))


def read(target, keys, dealt, points):
    """The target's values, from its dealing and the points that it showed."""
    blinding, sealed = dealt[0].tobytes(), dealt[1]
    columns = []
    for row, other in enumerate(NEIGHBOURS):
        key, _ = sealing_keys(projected(points[row].tobytes()), CONTEXT, own=TARGET, their=other)
        box = sealed[row].tobytes()[-112:]
        columns.append(scalars(unsealed(box, key, CONTEXT, sender=TARGET, receiver=other, blinding=blinding)))
    rows = list(range(CONTEXT.threshold))
    seed, scalar = (
        reconstruct(rows, [columns[row][kind] for row in rows], among=CONTEXT.graph.degree) for kind in range(2)
    )
    request = (EVERYONE.astype(np.uint8), *keys.keys.of_neighbours(TARGET), dealt[-1])
    (masked,) = target.answer("mask", request)
    masks, publics = MaskSum(CONTEXT.cells, bits=CONTEXT.bits), keys.keys.table[:, 1]
    masks.add(self_mask_key(seed, CONTEXT, TARGET), sign=1)
    own = X25519PrivateKey.from_private_bytes(private_key(scalar))
    for other in NEIGHBOURS:
        both = publics[TARGET].tobytes(), publics[other].tobytes()
        pair = pair_mask_key(agreed(own, both[1]), CONTEXT.mask_context(EVERYONE), (TARGET, other), both)
        masks.add(pair, sign=1 if TARGET < other else -1)
    return (masked - masks.total).astype(np.int32)


def forgotten(index):
    """The member when it had another secret of this batch."""
    return Member(CONTEXT, index, VALUES[index], 99)


def absent_target(sides):
    """Dealings of members that were told that the target is absent."""
    return dealings(sides, advertised(sides), absent=[TARGET])


def older_target(sides):
    """Dealings to keys that the target had before it forgot its secret."""
    return dealings(sides, advertised([*sides[:TARGET], forgotten(TARGET), *sides[TARGET + 1 :]]))


def older_dealers(sides):
    """Dealings to the target under keys that the dealers had before they forgot theirs."""
    older = [each if each.index == TARGET else forgotten(each.index) for each in sides]
    return dealings(older, advertised(older))


@pytest.mark.parametrize("prepared", [absent_target, older_target, older_dealers])
def test_a_coordinator_gets_no_key_of_what_an_honest_member_dealt_to_honest_ones(prepared):
    sides = members({})
    target, keys = sides[TARGET], advertised(sides)
    own = dealings([target], keys)[TARGET]
    try:
        _, _, points, _ = shown(target, keys, own[-1], prepared(sides))
    except MalformedMessage:
        return  # refused, as it should be
    got = read(target, keys, own, points)
    pytest.fail(f"the coordinator read {int((got == VALUES[TARGET]).sum())} of {len(got)} values")
