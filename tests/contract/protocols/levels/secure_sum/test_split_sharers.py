"""A malicious coordinator, alone, tells one member of other sharers than all others, to take its masks off.

It tells the target that as many of its neighbours did not share as may be missing, so the target has no masks with
them. Of the other neighbours it says to everybody else that they left, as many as may leave, so their mask keys are
opened. These may be all, and the target's seed is opened as a survivor's: nothing is left but its own share of the
noise. More than 2 dropouts + colluders neighbours would rule that out; instead, nobody opens a share of a seed whose
owner did not say that it masked for the same sharers.
"""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from protocols.crypto.edwards import private_key
from protocols.crypto.masks import MaskSum, agreed
from protocols.crypto.shamir import reconstruct
from protocols.errors import MalformedMessage
from protocols.levels.secure_sum import ballot
from protocols.levels.secure_sum.collecting import Masked, collect_agreement
from protocols.levels.secure_sum.dealing import pair_mask_key, self_mask_key
from tests.harness.refusals import refuses
from tests.harness.sum_parties import Member, Sum, make_context

CONTEXT = make_context(12, 2, 1, cells=6)
VALUES = np.arange(72, dtype=np.int64).reshape(12, 6) - 30
TARGET = 3
NEIGHBOURS = CONTEXT.graph.neighbours(TARGET).tolist()
HIDDEN, GONE = NEIGHBOURS[: CONTEXT.dropouts], NEIGHBOURS[CONTEXT.dropouts :]


@pytest.fixture(scope="module")
def honest():
    running = Sum(CONTEXT, VALUES)
    running.run()
    return running


def read(honest, claim):
    """The target's values, as the coordinator reads them.

    claim: (what the target said of its sharers, what another said) -> what the coordinator says that the target said.
    """
    members = [Member(CONTEXT, index, VALUES[index]) for index in range(CONTEXT.parties)]
    asked = [index for index in range(CONTEXT.parties) if index not in (TARGET, *GONE)]
    request = list(honest.shared.request(TARGET))
    request[0] = request[0] & ~np.isin(np.arange(CONTEXT.parties), HIDDEN)
    masked, *said = members[TARGET].answer("mask", tuple(request))
    others = {index: members[index].answer("mask", honest.shared.request(index)) for index in asked}
    proofs = [np.zeros((CONTEXT.parties, *array.shape), np.uint8) for array in said]
    for index, (_, *replied) in others.items():
        for proof, array in zip(proofs, replied, strict=True):
            proof[index] = array
    for proof, array in zip(proofs, claim(said, others[0][1:]), strict=True):
        proof[TARGET] = array
    present = ~np.isin(np.arange(CONTEXT.parties), GONE)
    said_left = Masked(honest.shared, present, np.zeros(CONTEXT.cells, CONTEXT.dtype), *proofs)
    agreed_on = {index: members[index].answer("agree", said_left.request) for index in asked}
    agreement = collect_agreement(said_left, agreed_on)
    opened = {index: members[index].answer("unmask", agreement.request(index))[1] for index in asked}

    masks, publics = MaskSum(CONTEXT.cells, bits=CONTEXT.bits), honest.keys.table[:, 1]
    masks.add(self_mask_key(secret_of(TARGET, opened), CONTEXT, TARGET), sign=1)
    for other in GONE:
        key = X25519PrivateKey.from_private_bytes(private_key(secret_of(other, opened)))
        both = publics[other].tobytes(), publics[TARGET].tobytes()
        pair = pair_mask_key(agreed(key, both[1]), CONTEXT.mask_context(request[0] == 1), (other, TARGET), both)
        masks.add(pair, sign=1 if TARGET < other else -1)
    return (masked - masks.total).astype(np.int32)


def secret_of(owner, opened):
    holders, back = CONTEXT.graph.neighbours(owner).tolist(), CONTEXT.graph.reverse
    shares = {row: opened[holder][back[row]].tobytes() for row, holder in enumerate(holders) if holder in opened}
    return reconstruct(
        list(shares), [int.from_bytes(share, "little") for share in shares.values()], among=CONTEXT.graph.degree
    )


CLAIMS = {
    "nothing": lambda own, others: [np.zeros_like(array) for array in own],
    "what it said of its own sharers": lambda own, others: own,
    "what another member said": lambda own, others: others,
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_seed_is_opened_only_for_the_sharers_that_its_owner_masked_for(honest, name) -> None:
    with refuses(MalformedMessage, "hospital-003"):
        read(honest, CLAIMS[name])


def test_otherwise_the_coordinator_alone_reads_every_value_of_the_target(honest, monkeypatch) -> None:
    """The control: members that do not look at what the target said."""
    real = ballot._authentic
    said = b"conclave secure sum masked"
    monkeypatch.setattr(ballot, "_authentic", lambda *given: given[2].startswith(said) or real(*given))
    np.testing.assert_array_equal(read(honest, CLAIMS["nothing"]), VALUES[TARGET])
