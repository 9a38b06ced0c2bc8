"""Members of a masked sum that run another program: what one can send or leave out at each step, signed as its own."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from protocols.errors import MalformedMessage, Refused
from protocols.levels.secure_sum import ballot as party
from protocols.levels.secure_sum import dealing as dealt
from protocols.levels.secure_sum.dealing import Dealing
from protocols.levels.secure_sum.wire import NOT_VALID, VALID, keys_statement, masked_statement, sized, table_of
from tests.harness.sum_parties import STEPS, Member, Sum


@dataclass
class Attacker(Member):
    """A member with a plan: by step, a function of (attacker, request, honest reply) that gives its reply, or None."""

    plan: dict = field(default_factory=dict)
    # All members, of whom a rushing attacker may know what an honest coordinator has not passed on yet.
    others: list = field(default_factory=list)

    def answer(self, step, request):
        deviate = self.plan.get(step)
        if deviate is None:
            return super().answer(step, request)
        try:
            return deviate(self, request, lambda: super(Attacker, self).answer(step, request))
        except (MalformedMessage, Refused):
            return None  # its own program refuses what its deviations led to


def attacked(context, values, plans, *, seed=0):
    """A sum with attackers. plans: by index."""
    running = Sum(context, values, seed=seed)
    for index, plan in plans.items():
        running.members[index] = Attacker(context, index, values[index], seed, plan=plan, others=running.members)
    return running


def silent(attacker, request, honest):
    """Sends nothing."""
    return None


def leaves(step):
    """A plan to send nothing from a step on."""
    return dict.fromkeys(STEPS[STEPS.index(step) :], silent)


def shorter(attacker, request, honest):
    """Sends one array less."""
    return honest()[:-1]


def scrambled(place, *, seed=7):
    """Random bytes in one array, and nothing signed again."""

    def reply(attacker, request, honest):
        arrays = list(honest())
        random = np.random.default_rng(seed).integers(0, 256, arrays[place].nbytes, dtype=np.uint8)
        arrays[place] = random.view(arrays[place].dtype).reshape(arrays[place].shape)
        return tuple(arrays)

    return reply


def with_keys(change):
    """Other public keys, signed and tagged as they should be. change: (attacker, keys) -> keys."""

    def reply(attacker, request, honest):
        keys = change(attacker, honest()[0].copy())
        return keys, *_signed(attacker, keys_statement(attacker.context.digest, attacker.index, keys))

    return reply


def _signed(attacker, statement):
    names, others = attacker.context.members, attacker.context.graph.neighbours(attacker.index).tolist()
    tags = [attacker.authenticator.tag(names[other], statement) for other in others]
    return sized(attacker.authenticator.sign(statement)), table_of(tags)


def key_of(place, content):
    def change(attacker, keys):
        keys[place] = np.frombuffer(content, np.uint8)
        return keys

    return with_keys(change)


def copied_key(place):
    """A neighbour's public key as its own."""

    def change(attacker, keys):
        victim = attacker.others[int(attacker.context.graph.neighbours(attacker.index)[0])]
        theirs, _ = party._own_keys(party.Secrets(*victim.own), victim.context, victim.index)
        keys[place] = theirs[place]
        return keys

    return with_keys(change)


def with_dealing(change):
    """Another dealing, signed and tagged as it should be. change: (attacker, arrays of the dealing) -> arrays."""

    def reply(attacker, request, honest):
        *arrays, _, _, receipt = honest()
        blinding, *tables = change(attacker, [array.copy() for array in arrays])
        own, _ = party._own_keys(party.Secrets(*attacker.own), attacker.context, attacker.index)
        statement = Dealing(blinding.tobytes(), *tables).statement(attacker.context, attacker.index, own.tobytes())
        return blinding, *tables, *_signed(attacker, statement), receipt

    return reply


def garbage_for(places, rows):
    """Random bytes in arrays of the dealing, in some rows; of what is sealed, behind the receiver's key."""

    def change(attacker, arrays):
        for place in places:
            arrays[place][rows, 32 if place == 1 else 0 :] ^= np.uint8(0x5A)
        return arrays

    return with_dealing(change)


def crooked_shares(kind, rows):
    """Shares off the polynomial, sealed, committed to and answered for as if they were on it."""

    def reply(attacker, request, honest):
        straight, calls = dealt.split, []

        def split(coefficients, *, shares):
            calls.append(None)
            values = straight(coefficients, shares=shares)
            return [value + (len(calls) - 1 == kind and row in rows) for row, value in enumerate(values)]

        with patch.object(dealt, "split", split):
            return honest()

    return reply


def garbage_sealed(rows):
    """Garbage sealed for some neighbours, of which everything else follows as it should."""

    def reply(attacker, request, honest):
        with sealing_garbage(rows):
            return honest()

    return reply


@contextmanager
def sealing_garbage(rows):
    """In this process, dealings hold garbage in some rows."""
    straight, calls = dealt.sealed_to, []

    def seal(plaintext, key, context, **about):
        calls.append(None)
        if len(calls) - 1 in rows:
            plaintext = bytes(len(plaintext))
        return straight(plaintext, key, context, **about)

    with patch.object(dealt, "sealed_to", seal):
        yield


def falsely_committed(attacker, request, honest):
    """Commitments to other shares than it deals, of which everything else follows as it should."""
    straight = dealt.commitments
    with patch.object(dealt, "commitments", lambda *given: straight(*given[:-1], given[-1][::-1])):
        return honest()


def other_secret(attacker, request, honest):
    """Consistent shares of another private key than the one whose public key it signed."""
    with patch.object(party.Secrets, "shared_mask_key", lambda self: 12345):
        return honest()


def accuses(everybody=True):
    """Says that the shares of all neighbours, or of the first one, are not valid."""

    def reply(attacker, request, honest):
        verdicts, values, kept = honest()
        verdicts = verdicts.copy()
        verdicts[: None if everybody else 1] = NOT_VALID
        return verdicts, values, kept

    return reply


def insists(attacker, request, honest):
    """In a dispute: what it showed is wrong, without a proof."""
    verdicts, values, points, proofs = honest()
    return np.full_like(verdicts, NOT_VALID), values, points, proofs


def proves_something_else(attacker, request, honest):
    """In a dispute: the right point with a proof that is made for it, so that the share opens, and is valid."""
    with patch("protocols.levels.secure_sum.checking.valid_share", lambda *given, **named: None):
        return honest()


def claims_valid(attacker, request, honest):
    """Says that all shares are valid, and combines them to nonsense."""
    verdicts, values, *rest = honest()
    return np.full_like(verdicts, VALID), values ^ np.uint8(1), *rest


def for_other_sharers(attacker, request, honest):
    """Says, signed and tagged, that it masked for other sharers than it was told of."""
    context = attacker.context
    about = context.mask_context(np.arange(context.parties) != 0)
    return honest()[0], *_signed(attacker, masked_statement(context.digest, attacker.index, about))


LOW, PRIME = bytes(32), (2**255 - 19).to_bytes(32, "little")
# By step, what an attacker may do there.
DEVIATIONS = {
    "advertise": {
        "silent": silent, "shorter": shorter, "scrambled keys": scrambled(0), "scrambled signature": scrambled(1),
        "scrambled tags": scrambled(2), "low-order sealing key": key_of(0, LOW), "low-order mask key": key_of(1, LOW),
        "key beyond the field": key_of(1, PRIME), "sealing key on the twist": key_of(0, (2).to_bytes(32, "little")),
        "mask key on the twist": key_of(1, (2).to_bytes(32, "little")), "copied sealing key": copied_key(0),
        "copied mask key": copied_key(1), "equal keys": with_keys(lambda attacker, keys: keys[[0, 0, 2]]),
    },
    "share": {
        "silent": silent, "shorter": shorter, "scrambled sealed": scrambled(1), "scrambled answers": scrambled(3),
        "scrambled signature": scrambled(4), "scrambled tags": scrambled(5), "scrambled receipt": scrambled(6),
        "garbage for all": garbage_for([1], slice(None)), "garbage for one": garbage_for([1], slice(1)),
        "wrong commitments": garbage_for([2], slice(0, 2)), "wrong answers": garbage_for([3], slice(1, None)),
        "crooked key for one": crooked_shares(1, [0]), "crooked key for two": crooked_shares(1, [0, 1]),
        "crooked key for all": crooked_shares(1, range(1, 40, 2)), "another key": other_secret,
        "garbage sealed for one": garbage_sealed([0]), "garbage sealed for all": garbage_sealed(range(40)),
        "false commitments": falsely_committed,
    },
    "check": {
        "silent": silent, "shorter": shorter, "accuses all": accuses(), "accuses one": accuses(everybody=False),
        "claims valid": claims_valid, "scrambled values": scrambled(1), "scrambled kept": scrambled(2),
    },
    "accuse": {
        "silent": silent, "shorter": shorter, "insists": insists, "proves something else": proves_something_else,
        "claims valid": claims_valid, "scrambled points": scrambled(2), "scrambled proofs": scrambled(3),
    },
    "mask": {
        "silent": silent, "shorter": shorter, "scrambled signature": scrambled(1), "scrambled tags": scrambled(2),
        "other sharers": for_other_sharers,
    },
    "agree": {"silent": silent, "shorter": shorter, "scrambled tags": scrambled(0)},
    "unmask": {"silent": silent, "shorter": shorter, "scrambled seed": scrambled(0), "scrambled shares": scrambled(1)},
}  # fmt: skip
