"""A party's five steps of one secure sum: pure functions of its one secret, the context and what it received.

Bonawitz et al. 2017, Figure 4, on the graph of crypto/masking_graph.py. Besides its secret, a party must keep a note of
its masked input and a note of the survivors that it signed; the first of each stands (notes in its ledger).
`masking_note` and `survivors_note` say what to keep; the steps refuse to act on anything else. The masked input is sent
once: the caller stores the reply, and a retry gets the stored one, because the same masks over other values (noise
drawn again) would reveal the difference.

An honest coordinator learns the sum over the survivors, and what up to `colluders` parties tell it. A dishonest one
learns one sum over at least `fewest` parties of its choice, or nothing: keys are signed or tagged, a quorum exists for
one set of survivors only, masks are bound to the set of sharers, and no honest party opens both secrets of another.
Another context is another sum of the same votes: it needs a fresh secret, fresh noise and its own charge. Nothing here
checks the vectors: a party can add any vector.

Differences from the paper: sealed shares are relayed at the last step, where they are opened; a survivor gives its own
seed itself; the signed statement names the sharers too; pairwise tags are checked before signatures, which decide where
a tag fails (authenticator.py); public keys come back with the party's receipt of them, in which it sealed, to itself,
what opens its neighbours' shares.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int64, UInt8
from numpy import ndarray

from protocols.crypto.masked_ring import to_ring
from protocols.crypto.masks import KEY_BYTES, MaskSum, agreed, same
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.levels.secure_sum.authenticator import TAG_BYTES, Authenticator
from protocols.levels.secure_sum.batch_secret import Secrets, pair_mask_key, seal, sealing_keys, unseal
from protocols.levels.secure_sum.context import Context
from protocols.levels.secure_sum.wire import (
    KEY_SHARE,
    KEYS,
    NOT_OPENED,
    SEALED_BYTES,
    SEED_SHARE,
    SIGNATURE_BYTES,
    Arrays,
    checked,
    commitment,
    flags,
    keys_statement,
    octets,
    padded,
    receipt_bytes,
    rows_of,
    survivors_statement,
    table_of,
    unpadded,
)
from protocols.refusals.code import Code


def advertise(batch_secret: bytes, context: Context, index: int, *, authenticator: Authenticator) -> Arrays:
    """Step 1: this party's keys, its signature of them, and a tag of them for each neighbour."""
    secrets = Secrets(batch_secret, context, index)
    publics = [key.public_key().public_bytes_raw() for key in (secrets.sealing_key(), secrets.mask_key())]
    keys = octets(b"".join([*publics, commitment(context.digest, index, secrets.seed)])).reshape(KEYS)
    statement, names = keys_statement(context.digest, index, keys), context.members
    tags = [authenticator.tag(names[other], statement) for other in context.graph.neighbours(index).tolist()]
    return keys, padded(authenticator.sign(statement)), table_of(tags)


def share(
    batch_secret: bytes, context: Context, index: int, request: Arrays, *, authenticator: Authenticator
) -> Arrays:
    """Step 2: shares of both secrets, sealed to each neighbour that advertised keys, and a receipt of those keys.

    Raises MalformedMessage, naming the party, for keys that their owner did not sign; Refused("too_few_parties").
    """
    secrets, graph = Secrets(batch_secret, context, index), context.graph
    here, keys, signatures, tags = checked(
        request,
        ("present", "|u1", (graph.degree,)),
        ("keys", "|u1", (graph.degree, *KEYS)),
        ("signatures", "|u1", (graph.degree, SIGNATURE_BYTES)),
        ("tags", "|u1", (graph.degree, TAG_BYTES)),
    )
    present = flags(here, "present")
    _enough(int(present.sum()), context.threshold, "neighbours with keys")
    neighbours, rows, tagged = graph.neighbours(index).tolist(), np.flatnonzero(present).tolist(), rows_of(tags)
    for row in rows:
        name, statement = context.members[neighbours[row]], keys_statement(context.digest, neighbours[row], keys[row])
        if not _authentic(authenticator, name, statement, tagged[row], signatures[row]):
            raise MalformedMessage(f"keys of {name!r}: neither tag nor signature is that member's")
    shares, publics, own_key = rows_of(secrets.shares()), rows_of(keys[:, 0]), secrets.sealing_key()
    secrets_of = {row: agreed(own_key, publics[row]) for row in rows}
    sealed, opening = [bytes(SEALED_BYTES)] * graph.degree, [bytes(KEY_BYTES)] * graph.degree
    for row in rows:
        secret, other = secrets_of[row], neighbours[row]
        outward, opening[row] = sealing_keys(secret, context, own=index, their=other)
        sealed[row] = seal(shares[row], outward, context, sender=index, receiver=other)
    return table_of(sealed), octets(secrets.keep(b"".join(opening), _verified(present, keys)))


def masking_note(context: Context, index: int, request: Arrays) -> bytes:
    """What to keep before `mask`: the sharers that this party masks with. The first one stands."""
    return context.mask_context(_Masking.read(context, index, request).sharers)


def mask(
    batch_secret: bytes,
    context: Context,
    index: int,
    request: Arrays,
    values: Int64[ndarray, " cells"],
    *,
    noted: bytes,
) -> Arrays:
    """Step 3: the values, votes and noise share, under the self mask and the masks of all neighbours that shared.

    noted: the kept masking_note. Raises Refused("other_sharers") if it is of another request,
    Refused("too_few_parties"), MalformedMessage, and InvalidInput for values of another length.
    """
    if values.shape != (context.cells,) or values.dtype != np.int64:
        raise InvalidInput(
            f"values: {values.dtype} of shape {values.shape}; allowed: int64 of shape ({context.cells},)"
        )
    masking, secrets = _Masking.read(context, index, request), Secrets(batch_secret, context, index)
    about = context.mask_context(masking.sharers)
    if not same(about, noted):
        raise Refused(Code.OTHER_SHARERS, "the batch was masked before, for another set of sharers")
    masking.keys.recall(secrets)
    masked, own_key, neighbours = MaskSum(context.cells, bits=context.bits), secrets.mask_key(), masking.keys.neighbours
    own_public, publics = own_key.public_key().public_bytes_raw(), rows_of(masking.keys.table[:, 1])
    sharing = np.flatnonzero(masking.sharers[neighbours]).tolist()
    secrets_of = {row: agreed(own_key, publics[row]) for row in sharing}
    for row in sharing:
        other, public = int(neighbours[row]), publics[row]
        key = pair_mask_key(secrets_of[row], about, (index, other), (own_public, public))
        masked.add(key, sign=1 if index < other else -1)
    masked.add(secrets.seed, sign=1)
    return (masked.total + to_ring(values, bits=context.bits),)


def survivors_note(context: Context, index: int, request: Arrays) -> bytes:
    """What to keep before `agree`: the survivors that this party signs. The first one stands.

    request: of step 4, or the first two arrays of step 5's, for a party that step 4 did not reach.
    """
    return _statement_digest(context, *_sets(context, index, request))


def agree(
    context: Context, index: int, request: Arrays, *, masked: bytes, noted: bytes, authenticator: Authenticator
) -> Arrays:
    """Step 4: this party's signature on who is left, and a tag of it for each other survivor.

    masked, noted: the masking_note and the survivors_note that were kept. Raises Refused("other_sharers"),
    Refused("other_survivors"), Refused("too_few_parties"), Refused("not_a_survivor") and MalformedMessage.
    """
    sharers, survivors = _sets(context, index, request)
    _check_notes(context, sharers, survivors, masked, noted)
    statement = survivors_statement(context.digest, sharers, survivors)
    tags = [bytes(TAG_BYTES)] * context.parties
    for other in np.flatnonzero(survivors).tolist():
        if other != index:
            tags[other] = authenticator.tag(context.members[other], statement)
    return padded(authenticator.sign(statement)), table_of(tags)


def unmask(
    batch_secret: bytes,
    context: Context,
    index: int,
    request: Arrays,
    *,
    masked: bytes,
    noted: bytes,
    authenticator: Authenticator,
) -> Arrays:
    """Step 5: this party's seed, and of each neighbour the share of its seed if it is left, of its mask key if not.

    masked, noted: the masking_note and the survivors_note that were kept. Returns the seed; for each neighbour NOTHING,
    SEED_SHARE, KEY_SHARE or NOT_OPENED (the sealed share was not that neighbour's for this party in this batch); the
    shares. Raises as `agree`, and MalformedMessage, naming the party, where neither tag nor signature is its own.
    """
    secrets, graph = Secrets(batch_secret, context, index), context.graph
    here, there, present, table, receipt, signed, signatures, tags, sealed = checked(
        request,
        ("sharers", "|u1", (context.parties,)),
        ("survivors", "|u1", (context.parties,)),
        ("present", "|u1", (graph.degree,)),
        ("keys", "|u1", (graph.degree, *KEYS)),
        ("receipt", "|u1", (receipt_bytes(graph.degree),)),
        ("signed", "|u1", (context.parties,)),
        ("signatures", "|u1", (context.quorum, SIGNATURE_BYTES)),
        ("tags", "|u1", (context.quorum, TAG_BYTES)),
        ("sealed", "|u1", (graph.degree, SEALED_BYTES)),
    )
    sharers, survivors = _sets(context, index, (here, there))
    _check_notes(context, sharers, survivors, masked, noted)
    keys = _Keys.read(context, index, present, table, receipt)
    keys.check_cover(sharers)
    opening = keys.recall(secrets)
    signers = _signers(context, survivors, flags(signed, "signed"))
    statement = survivors_statement(context.digest, sharers, survivors)
    for signer, signature, tag in zip(signers, signatures, rows_of(tags), strict=True):
        # What this party signed itself is in its note, and was compared.
        if signer != index and not _authentic(authenticator, context.members[signer], statement, tag, signature):
            raise MalformedMessage(
                f"survivors: neither tag nor signature of {context.members[signer]!r} is that member's"
            )
    kinds, shares, given = np.zeros(graph.degree, dtype=np.uint8), [bytes(KEY_BYTES)] * graph.degree, rows_of(sealed)
    for row in np.flatnonzero(sharers[keys.neighbours]).tolist():
        other = int(keys.neighbours[row])
        both = unseal(given[row], opening[row], context, sender=other, receiver=index)
        if both is None:
            kinds[row] = NOT_OPENED
        elif survivors[other]:
            kinds[row], shares[row] = SEED_SHARE, both[:KEY_BYTES]
        else:
            kinds[row], shares[row] = KEY_SHARE, both[KEY_BYTES:]
    return octets(secrets.seed), kinds, table_of(shares)


@dataclass(frozen=True, eq=False)
class _Keys:
    """The keys of a party's neighbours, which it verified when it gave the receipt."""

    neighbours: Int64[ndarray, " neighbours"]
    present: Bool[ndarray, " neighbours"]
    table: UInt8[ndarray, "neighbours 3 32"] = field(repr=False)
    receipt: bytes = field(repr=False)

    @classmethod
    def read(cls, context: Context, index: int, present: ndarray, table: ndarray, receipt: ndarray) -> _Keys:
        return cls(context.graph.neighbours(index), flags(present, "present"), table, receipt.tobytes())

    def recall(self, secrets: Secrets) -> list[bytes]:
        """The keys that open the neighbours' shares, which only a receipt for verified keys gives."""
        opening = secrets.recall(self.receipt, _verified(self.present, self.table))
        return rows_of(octets(opening).reshape(-1, KEY_BYTES))

    def check_cover(self, sharers: Bool[ndarray, " parties"]) -> None:
        if (sharers[self.neighbours] & ~self.present).any():
            raise MalformedMessage("keys: those of a neighbour among the sharers are missing; allowed: all of them")


@dataclass(frozen=True, eq=False)
class _Masking:
    """A request of step 3."""

    sharers: Bool[ndarray, " parties"]
    keys: _Keys

    @classmethod
    def read(cls, context: Context, index: int, request: Arrays) -> _Masking:
        degree = context.graph.degree
        there, present, table, receipt = checked(
            request,
            ("sharers", "|u1", (context.parties,)),
            ("present", "|u1", (degree,)),
            ("keys", "|u1", (degree, *KEYS)),
            ("receipt", "|u1", (receipt_bytes(degree),)),
        )
        sharers = flags(there, "sharers")
        _enough(int(sharers.sum()), context.fewest, "sharers")
        if not sharers[index]:
            raise Refused(Code.NOT_A_SHARER, "this party is not among the sharers")
        keys = _Keys.read(context, index, present, table, receipt)
        keys.check_cover(sharers)
        _enough(int(sharers[keys.neighbours].sum()), context.threshold, "neighbours that shared")
        return cls(sharers, keys)


def _sets(context: Context, index: int, request: Arrays) -> tuple[Bool[ndarray, " parties"], Bool[ndarray, " parties"]]:
    """Sharers and survivors of a request of step 4, if a party may sign them."""
    there, left = checked(request, ("sharers", "|u1", (context.parties,)), ("survivors", "|u1", (context.parties,)))
    sharers, survivors = flags(there, "sharers"), flags(left, "survivors")
    if (survivors & ~sharers).any():
        raise MalformedMessage("survivors: one of them did not share; allowed: sharers only")
    _enough(int(survivors.sum()), context.fewest, "survivors")
    if not survivors[index]:
        raise Refused(Code.NOT_A_SURVIVOR, "this party is not among the survivors")
    return sharers, survivors


def _check_notes(
    context: Context,
    sharers: Bool[ndarray, " parties"],
    survivors: Bool[ndarray, " parties"],
    masked: bytes,
    noted: bytes,
) -> None:
    if not same(context.mask_context(sharers), masked):
        raise Refused(Code.OTHER_SHARERS, "this party masked its votes for another set of sharers")
    if not same(_statement_digest(context, sharers, survivors), noted):
        raise Refused(Code.OTHER_SURVIVORS, "this party signed another set of survivors")


def _signers(context: Context, survivors: Bool[ndarray, " parties"], signed: Bool[ndarray, " parties"]) -> list[int]:
    if (signed & ~survivors).any() or int(signed.sum()) != context.quorum:
        raise MalformedMessage(f"signed: {int(signed.sum())} members; allowed: {context.quorum} of the survivors")
    return np.flatnonzero(signed).tolist()


def _authentic(
    authenticator: Authenticator,
    member: str,
    statement: bytes,
    tag: bytes,
    signature: UInt8[ndarray, " 73"],
) -> bool:
    """Whether a statement is the member's. The tag is cheap to check; the signature decides if it fails."""
    return authenticator.holds(member, statement, tag) or authenticator.verify(member, statement, unpadded(signature))


def _statement_digest(
    context: Context, sharers: Bool[ndarray, " parties"], survivors: Bool[ndarray, " parties"]
) -> bytes:
    return hashlib.sha256(survivors_statement(context.digest, sharers, survivors)).digest()


def _verified(present: Bool[ndarray, " neighbours"], keys: UInt8[ndarray, "neighbours 3 32"]) -> bytes:
    return hashlib.sha256(present.tobytes() + keys.tobytes()).digest()


def _enough(count: int, needed: int, what: str) -> None:
    if count < needed:
        raise Refused(Code.TOO_FEW_PARTIES, f"{count} {what}; allowed: at least {needed}")
