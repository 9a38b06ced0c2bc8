"""Checking what was dealt, before anything is masked; and what a party seals to itself between steps.

What a party seals to itself between steps, so that it keeps nothing of a batch but its secret and a few notes.

The coordinator brings both back: the keys that open neighbours' shares, with the neighbours' public keys that the party
verified then, and the shares that it opened.

A party's check of what its neighbours dealt to it, before it masks anything, and its proof of what is wrong.

`check` opens every share and gives what it combines to; the coordinator compares that with the dealer's answer. Where a
share is not valid, or not authentic, `accuse` gets all that its dealer sent, under the dealer's signature, and either
finds the share valid after all, or shows the key of this one sealed share: the point that both agreed on, with a proof
that it is that point (crypto/edwards.py). Anybody can then open the share and see who is right.

A party says what it combined only for a dealing that the dealer tagged or signed, and shows a key only if that dealing
was also dealt to its present key, with the dealer's present key. An honest dealer answers one challenge with one
dealing, and its dealings are valid for whom it dealt to, so a coordinator that forges or mixes dealings gets neither
from honest parties. A dealing that was made while this party was said to be away, or before one of the two drew the
batch's secret anew, does not open either: without these two conditions such dealings of all neighbours would make a
party show the keys of everything that it dealt itself.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int64, UInt8
from numpy import ndarray

from protocols.crypto.edwards import POINT_BYTES, PROOF_BYTES, SCALAR_BYTES, all_lifted, lifted, prove
from protocols.crypto.masks import KEY_BYTES
from protocols.errors import MalformedMessage
from protocols.levels.secure_sum.dealing import (
    COMMITMENT_BYTES,
    SHARES_BYTES,
    Dealing,
    Secrets,
    answered,
    challenge,
    combined,
    dealing_statement,
    dealt_message,
    mask_point,
    opened,
    pair_of,
)
from protocols.levels.secure_sum.terms import Context
from protocols.levels.secure_sum.wire import (
    KEYS,
    MASK_ROW,
    MASK_TAG_BYTES,
    NOT_VALID,
    PADDED_SIGNATURE_BYTES,
    SEALED_BYTES,
    SEALING_ROW,
    SECRET_KINDS,
    VALID,
    Authenticator,
    checked,
    flags,
    octets,
    receipt_bytes,
    rows_of,
    table_of,
    unpadded,
)
from protocols.wire.messages import Arrays

# What the two are called, in messages and in the derivation of their keys.
RECEIPT, KEPT_SHARES = b"receipt", b"kept shares"


@dataclass(frozen=True, eq=False)
class VerifiedKeys:
    """The keys of a party's neighbours, which it verified when it gave the receipt."""

    neighbours: Int64[ndarray, " neighbours"] = field(repr=False)
    present: Bool[ndarray, " neighbours"] = field(repr=False)
    table: UInt8[ndarray, "neighbours 3 32"] = field(repr=False)
    receipt: bytes = field(repr=False)

    @classmethod
    def read(cls, context: Context, index: int, present: ndarray, table: ndarray, receipt: ndarray) -> VerifiedKeys:
        """Of a request's arrays. Raises MalformedMessage."""
        return cls(context.graph.neighbours(index), flags(present, "present"), table, receipt.tobytes())

    def recall(self, secrets: Secrets) -> list[bytes]:
        """The keys that open the neighbours' shares, which only a receipt for verified keys gives."""
        return rows_of(
            octets(secrets.recall(RECEIPT, self.receipt, verified(self.present, self.table))).reshape(-1, 32)
        )

    def check_has(self, wanted: Bool[ndarray, " neighbours"], what: str, context: Context) -> None:
        """Raises MalformedMessage, naming the member, if the keys of a wanted neighbour are missing."""
        if (missing := np.flatnonzero(wanted & ~self.present)).size:
            name = context.members[self.neighbours[missing[0]]]
            raise MalformedMessage(f"keys: those of {name!r} are missing; allowed: those of all neighbours {what}")


def verified(present: Bool[ndarray, " neighbours"], keys: UInt8[ndarray, "neighbours 3 32"]) -> bytes:
    """Which neighbours have which keys."""
    return hashlib.sha256(present.tobytes() + keys.tobytes()).digest()


def kept_shares(secrets: Secrets, kept: bytes) -> UInt8[ndarray, "neighbours 2 32"]:
    """The shares that a party opened, zeros where it did not. Raises MalformedMessage for what it did not seal."""
    name, sealed = kept[:KEY_BYTES], kept[KEY_BYTES:]
    return octets(secrets.recall(KEPT_SHARES, sealed, name)).reshape(-1, SECRET_KINDS, KEY_BYTES)


def check_shares(
    batch_secret: bytes, context: Context, index: int, request: Arrays, *, authenticator: Authenticator
) -> Arrays:
    """Step 3: of each neighbour that dealt, whether its shares are valid, and what they combine to; the shares, sealed
    to this party itself.

    Raises MalformedMessage for a receipt that is not this party's.
    """
    secrets, graph = Secrets(batch_secret, context, index), context.graph
    degree = graph.degree
    present, table, receipt, here, blindings, roots, answers, tags, sealed, hashes = checked(
        request,
        ("present", "|u1", (degree,)),
        ("keys", "|u1", (degree, *KEYS)),
        ("receipt", "|u1", (receipt_bytes(degree),)),
        ("dealt", "|u1", (degree,)),
        ("blindings", "|u1", (degree, POINT_BYTES)),
        ("roots", "|u1", (degree, KEY_BYTES)),
        ("answers", "|u1", (degree, KEY_BYTES)),
        ("tags", "|u1", (degree, MASK_TAG_BYTES)),
        ("sealed", "|u1", (degree, SEALED_BYTES)),
        ("commitments", "|u1", (degree, SECRET_KINDS * COMMITMENT_BYTES)),
    )
    keys = VerifiedKeys.read(context, index, present, table, receipt)
    opening, dealt = keys.recall(secrets), flags(here, "dealt")
    own_key = secrets.sealing_key().public_key().public_bytes_raw()
    keys.check_has(dealt, "that dealt", context)
    neighbours, publics = keys.neighbours.tolist(), rows_of(table.reshape(degree, -1))
    points = all_lifted(rows_of(table[:, MASK_ROW]))
    rows = [rows_of(each) for each in (blindings, roots, answers, tags, sealed, hashes)]
    verdicts = np.zeros(degree, dtype=np.uint8)
    values, shares = [bytes(SCALAR_BYTES)] * degree, [bytes(SHARES_BYTES)] * degree
    for row in np.flatnonzero(dealt).tolist():
        blinding, root, answer, tag, box, commitment = (each[row] for each in rows)
        dealer = neighbours[row]
        plaintext = opened(box, commitment, opening[row], context, dealer=dealer, receiver=index, blinding=blinding)
        if plaintext is not None:
            shares[row] = plaintext[:SHARES_BYTES]
        statement = dealing_statement(context.digest, dealer, publics[row], blinding, root, answer)
        if (
            plaintext is None
            or box[:KEY_BYTES] != own_key
            or not authenticator.holds(context.members[dealer], statement, tag)
        ):
            verdicts[row] = NOT_VALID
            continue
        verdicts[row] = VALID
        message = dealt_message(context, dealer, publics[row], root)
        values[row] = combined(plaintext, challenge(message, blinding, points[row]))
    name = hashlib.sha256(b"".join(array.tobytes() for array in request)).digest()
    kept = name + secrets.keep(KEPT_SHARES, b"".join(shares), name)
    return verdicts, table_of(values), octets(kept)


def accuse(
    batch_secret: bytes, context: Context, index: int, request: Arrays, *, authenticator: Authenticator
) -> Arrays:
    """Step 3, where a share was found wrong: for each disputed dealing VALID and what its share combines to, or
    NOT_VALID, the point that was agreed on with the dealer, and the proof of that.

    Raises MalformedMessage, naming the dealer, for a dealing that it did not sign, or did not seal to this party's key.
    """
    secrets, graph = Secrets(batch_secret, context, index), context.graph
    degree, threshold = graph.degree, context.threshold
    (marked,) = checked(request[3:4], ("disputed", "|u1", (degree,)))
    disputed = flags(marked, "disputed")
    count = int(disputed.sum())
    present, table, receipt, _, blindings, answers, signatures, sealed, hashes = checked(
        request,
        ("present", "|u1", (degree,)),
        ("keys", "|u1", (degree, *KEYS)),
        ("receipt", "|u1", (receipt_bytes(degree),)),
        ("disputed", "|u1", (degree,)),
        ("blindings", "|u1", (count, POINT_BYTES)),
        ("answers", "|u1", (count, threshold, KEY_BYTES)),
        ("signatures", "|u1", (count, PADDED_SIGNATURE_BYTES)),
        ("sealed", "|u1", (count, degree, SEALED_BYTES)),
        ("commitments", "|u1", (count, degree, SECRET_KINDS * COMMITMENT_BYTES)),
    )
    keys = VerifiedKeys.read(context, index, present, table, receipt)
    opening, own_key = keys.recall(secrets), secrets.sealing_key().public_key().public_bytes_raw()
    keys.check_has(disputed, "whose shares are disputed", context)
    verdicts, values = np.zeros(count, dtype=np.uint8), np.zeros((count, SCALAR_BYTES), dtype=np.uint8)
    points, proofs = np.zeros((count, POINT_BYTES), dtype=np.uint8), np.zeros((count, PROOF_BYTES), dtype=np.uint8)
    for place, row in enumerate(np.flatnonzero(disputed).tolist()):
        dealing = Dealing(blindings[place].tobytes(), sealed[place], hashes[place], answers[place])
        dealer, own_row = int(keys.neighbours[row]), int(graph.reverse[row])
        name, statement = context.members[dealer], dealing.statement(context, dealer, table[row].tobytes())
        if not authenticator.verify(name, statement, unpadded(signatures[place])):
            raise MalformedMessage(f"dealing of {name!r}: the signature is not that member's, for these keys")
        if dealing.receivers()[own_row].tobytes() != own_key:
            # It was dealt while this party was away: that it does not open here accuses nobody.
            raise MalformedMessage(f"dealing of {name!r}: it holds nothing that is sealed to this party's key")
        value = valid_share(dealing, opening[row], context, dealer=dealer, index=index, row=own_row, keys=table[row])
        if value is not None:
            verdicts[place], values[place] = VALID, octets(value)
            continue
        verdicts[place] = NOT_VALID
        about = pair_of(context, dealer, index)
        nonce = secrets.proof_nonce(hashlib.sha256(about + statement).digest())
        base = lifted(table[row, SEALING_ROW].tobytes())
        point, proof = prove(secrets.sealing_scalar(), base, about=about, nonce=nonce)
        points[place], proofs[place] = octets(point), octets(proof)
    return verdicts, values, points, proofs


def valid_share(
    dealing: Dealing, opening: bytes, context: Context, *, dealer: int, index: int, row: int, keys: ndarray
) -> bytes | None:
    """What the share in the dealer's row `row`, which is for party `index`, combines to; None if it is not valid."""
    plaintext = opened(
        dealing.sealed[row].tobytes(), dealing.commitments[row].tobytes(), opening, context,
        dealer=dealer, receiver=index, blinding=dealing.blinding,
    )  # fmt: skip
    if plaintext is None:
        return None
    message = dealt_message(context, dealer, keys.tobytes(), dealing.root())
    value = combined(plaintext, challenge(message, dealing.blinding, mask_point(keys.tobytes())))
    return value if value == answered(dealing.answer(), row) else None
