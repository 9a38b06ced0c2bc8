"""The coordinator's check of what was dealt, before anybody masks: who dealt wrongly, and who accuses wrongly.

A dealer's answers are compared with its public key, and with what each neighbour's share combines to (dealing.py).
Where a neighbour says otherwise, it is asked for the key of that one sealed share, with a proof, and the share is
opened: either the dealer is left out, or the neighbour. Nobody else is, and it takes one round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import mul

import numpy as np
from jaxtyping import Bool, UInt8
from numpy import ndarray

from protocols.crypto.edwards import (
    ORDER,
    POINT_BYTES,
    PROOF_BYTES,
    SCALAR_BYTES,
    all_lifted,
    is_point,
    knows_logarithm,
    lifted,
    projected,
    proves,
)
from protocols.crypto.masks import KEY_BYTES, key_stream
from protocols.levels.secure_sum.checking import valid_share
from protocols.levels.secure_sum.collecting import Keys, SeatReplies, Shared, enough, gather, reply_fault
from protocols.levels.secure_sum.dealing import (
    Dealing,
    answered,
    answers_hash,
    dealt_message,
    no_dealings,
    pair_of,
    scalars,
    sealing_keys,
)
from protocols.levels.secure_sum.terms import Context
from protocols.levels.secure_sum.wire import (
    MASK_ROW,
    MASK_TAG_BYTES,
    PADDED_SIGNATURE_BYTES,
    SEALING_ROW,
    VALID,
    Verify,
    checked,
    kept_bytes,
    receipt_bytes,
    unpadded,
)
from protocols.refusals.code import Code
from protocols.wire.messages import Arrays

_WEIGHT_BITS = 128


@dataclass(frozen=True, eq=False)
class _Dealt:
    """After step 2: what the dealers dealt, their signatures and tags of it, and their receipts."""

    keys: Keys
    present: Bool[ndarray, " parties"]
    dealings: Mapping[int, Dealing] = field(repr=False)
    sealed: UInt8[ndarray, "parties neighbours sealed"] = field(repr=False)
    commitments: UInt8[ndarray, "parties neighbours 64"] = field(repr=False)
    # Blinding, root and hash of answers of each dealer, which with its index are its statement.
    stated: UInt8[ndarray, "parties 3 32"] = field(repr=False)
    signatures: UInt8[ndarray, "parties 73"] = field(repr=False)
    tags: UInt8[ndarray, "parties neighbours 16"] = field(repr=False)
    receipts: UInt8[ndarray, "parties receipt"] = field(repr=False)
    left_out: dict[str, str] = field(default_factory=dict)

    def request(self, index: int) -> Arrays:
        """Step 3's request to a dealer."""
        graph = self.keys.context.graph
        neighbours, own = graph.table[index], graph.reverse
        stated = self.stated[neighbours]
        return (
            *self.keys.of_neighbours(index),
            self.receipts[index],
            self.present[neighbours].astype(np.uint8),
            *(np.ascontiguousarray(stated[:, place]) for place in range(3)),
            self.tags[neighbours, own],
            self.sealed[neighbours, own],
            self.commitments[neighbours, own],
        )


@dataclass(frozen=True, eq=False)
class _Checked:
    """After step 3: who checked its shares, and whose shares it disputes. disputes: dealers, in the order of the
    accuser's neighbours.
    """

    dealt: _Dealt
    present: Bool[ndarray, " parties"]
    kept: UInt8[ndarray, "parties kept"] = field(repr=False)
    disputes: dict[int, list[int]]
    left_out: dict[str, str] = field(default_factory=dict)

    def request(self, index: int) -> Arrays:
        """The request to an accuser."""
        dealt, context, dealers = self.dealt, self.dealt.keys.context, self.disputes[index]
        disputed = np.isin(context.graph.table[index], dealers)
        return (
            *dealt.keys.of_neighbours(index),
            dealt.receipts[index],
            disputed.astype(np.uint8),
            dealt.stated[dealers, 0],
            np.stack([dealt.dealings[dealer].answers for dealer in dealers]),
            dealt.signatures[dealers],
            dealt.sealed[dealers],
            dealt.commitments[dealers],
        )


def collect_dealings(keys: Keys, replies: SeatReplies) -> _Dealt:
    """Collects step 2's replies: dealings to all keys, whose answers fit the dealer's own. Raises QuorumLost."""
    context = keys.context
    degree, threshold = context.graph.degree, context.threshold
    sealed, commitments = no_dealings(context)
    stated = np.zeros((context.parties, 3, KEY_BYTES), dtype=np.uint8)
    signatures = np.zeros((context.parties, PADDED_SIGNATURE_BYTES), dtype=np.uint8)
    tags = np.zeros((context.parties, degree, MASK_TAG_BYTES), dtype=np.uint8)
    receipts = np.zeros((context.parties, receipt_bytes(degree)), dtype=np.uint8)
    dealings: dict[int, Dealing] = {}
    points = all_lifted([key.tobytes() for key in keys.table[:, MASK_ROW]])
    to = np.where(keys.present[:, None], keys.table[:, SEALING_ROW], np.uint8(0))

    def take(index: int, reply: Arrays) -> str | None:
        blinding, sealed[index], commitments[index], answers, signatures[index], tags[index], receipts[index] = checked(
            reply,
            ("blinding", "|u1", (POINT_BYTES,)),
            ("sealed", "|u1", sealed.shape[1:]),
            ("commitments", "|u1", commitments.shape[1:]),
            ("answers", "|u1", (threshold, KEY_BYTES)),
            ("signature", "|u1", (PADDED_SIGNATURE_BYTES,)),
            ("tags", "|u1", (degree, MASK_TAG_BYTES)),
            ("receipt", "|u1", (receipt_bytes(degree),)),
        )
        dealing = Dealing(blinding.tobytes(), sealed[index], commitments[index], answers)
        root = dealing.root()
        if not np.array_equal(dealing.receivers(), to[context.graph.table[index]]):
            return Code.BAD_SHARES
        message = dealt_message(context, index, keys.table[index].tobytes(), root)
        if not knows_logarithm(points[index], dealing.blinding, answers[0].tobytes(), message):
            return Code.BAD_SHARES
        content = dealing.blinding + root + answers_hash(answers)
        stated[index] = np.frombuffer(content, dtype=np.uint8).reshape(3, KEY_BYTES)
        dealings[index] = dealing
        return None

    present, left_out = gather(context, keys.present, replies, take, keys.left_out, "dealt shares", context.fewest)
    return _Dealt(keys, present, dealings, sealed, commitments, stated, signatures, tags, receipts, left_out)


def collect_checks(dealt: _Dealt, replies: SeatReplies, *, verify: Verify) -> _Checked:
    """Collects step 3's replies. Raises QuorumLost."""
    context = dealt.keys.context
    degree = context.graph.degree
    verdicts = np.zeros((context.parties, degree), dtype=np.uint8)
    values = np.zeros((context.parties, degree, SCALAR_BYTES), dtype=np.uint8)
    kept = np.zeros((context.parties, kept_bytes(degree)), dtype=np.uint8)

    def take(index: int, reply: Arrays) -> None:
        verdicts[index], values[index], kept[index] = checked(
            reply,
            ("verdicts", "|u1", (degree,)),
            ("values", "|u1", (degree, SCALAR_BYTES)),
            ("kept", "|u1", (kept_bytes(degree),)),
        )

    present, left_out = gather(context, dealt.present, replies, take, dealt.left_out, "checked shares", context.fewest)
    disputes = _disputes(dealt, present, verdicts, values)
    # Whoever has a key of which nobody can prove anything, or did not sign what it dealt, is left out unheard.
    for index in sorted({*disputes, *(dealer for dealers in disputes.values() for dealer in dealers)}):
        name = context.members[index]
        statement = dealt.dealings[index].statement(context, index, dealt.keys.table[index].tobytes())
        if not is_point(lifted(dealt.keys.table[index, SEALING_ROW].tobytes())):
            left_out[name] = Code.WEAK_KEY
        elif not verify(name, statement, unpadded(dealt.signatures[index])):
            left_out[name] = Code.BAD_SIGNATURE
        else:
            continue
        present[index] = False
    standing = {
        accuser: [dealer for dealer in dealers if present[dealer]]
        for accuser, dealers in disputes.items()
        if present[accuser]
    }
    enough(context, present, left_out, "checked shares")
    return _Checked(dealt, present, kept, {who: dealers for who, dealers in standing.items() if dealers}, left_out)


def settle_disputes(checked_shares: _Checked, replies: SeatReplies) -> Shared:
    """Collects what accusers show: the sharers are all who are not found at fault. Raises QuorumLost."""
    dealt, context = checked_shares.dealt, checked_shares.dealt.keys.context
    present, left_out = checked_shares.present.copy(), dict(checked_shares.left_out)
    for accuser, dealers in checked_shares.disputes.items():

        def take(index: int, reply: Arrays, dealers: list[int] = dealers) -> str | None:
            shown = checked(
                reply,
                ("verdicts", "|u1", (len(dealers),)),
                ("values", "|u1", (len(dealers), SCALAR_BYTES)),
                ("points", "|u1", (len(dealers), POINT_BYTES)),
                ("proofs", "|u1", (len(dealers), PROOF_BYTES)),
            )
            for dealer, verdict, value, point, proof in zip(dealers, *shown, strict=True):
                if not present[dealer]:
                    continue
                if verdict == VALID:
                    row = _row_at(context, dealer, index)
                    if value.tobytes() != answered(dealt.dealings[dealer].answer(), row):
                        return Code.FALSE_ACCUSATION
                elif not _convicts(dealt, dealer, index, point.tobytes(), proof.tobytes()):
                    return Code.FALSE_ACCUSATION
                else:
                    present[dealer] = False
                    left_out[context.members[dealer]] = Code.BAD_SHARES
            return None

        if not present[accuser]:
            continue
        fault = reply_fault(replies.get(accuser), accuser, take)
        if fault is not None:
            present[accuser] = False
            left_out[context.members[accuser]] = fault
    enough(context, present, left_out, "dealt valid shares")
    return Shared(dealt.keys, present, dealt.commitments, dealt.receipts, checked_shares.kept, left_out)


def _disputes(
    dealt: _Dealt,
    present: Bool[ndarray, " parties"],
    verdicts: UInt8[ndarray, "parties neighbours"],
    values: UInt8[ndarray, "parties neighbours 32"],
) -> dict[int, list[int]]:
    """By accuser, the dealers with whose answers it does not agree."""
    context = dealt.keys.context
    graph, disputes = context.graph, _Disputes()
    weights = _Weights(values, context)
    for dealer in np.flatnonzero(present).tolist():
        holders = graph.table[dealer]
        polynomial = dealt.dealings[dealer].answer()
        there = present[holders]
        valid = there & (verdicts[holders, graph.reverse] == VALID)
        said = values[holders, graph.reverse]
        if not valid.all():
            # Rows without a value get the right one, so that the others can be compared together.
            said = said.copy()
            for row in np.flatnonzero(~valid).tolist():
                said[row] = np.frombuffer(answered(polynomial, row), dtype=np.uint8)
        wrong = there & ~valid
        if not weights.agree(polynomial, said.tobytes()):
            for row in np.flatnonzero(valid).tolist():
                wrong[row] = said[row].tobytes() != answered(polynomial, row)
        for row in np.flatnonzero(wrong).tolist():
            disputes.add(int(holders[row]), dealer)
    return disputes.sorted(context)


class _Disputes:
    """Dealers by accuser."""

    def __init__(self) -> None:
        self._dealers: dict[int, set[int]] = {}

    def add(self, accuser: int, dealer: int) -> None:
        self._dealers.setdefault(accuser, set()).add(dealer)

    def sorted(self, context: Context) -> dict[int, list[int]]:
        """In the order of indices, and of each accuser's neighbours."""
        return {
            accuser: [dealer for dealer in context.graph.table[accuser].tolist() if dealer in self._dealers[accuser]]
            for accuser in sorted(self._dealers)
        }


class _Weights:
    """Random weights of a dealer's rows: a wrong value changes the weighted sum, except with probability 2**-128.

    They are hashes of all values, which were sent before they were known.
    """

    def __init__(self, values: UInt8[ndarray, "parties neighbours 32"], context: Context) -> None:
        key = hashlib.sha256(b"conclave secure sum weights 2\n" + context.digest + values.tobytes()).digest()
        size = _WEIGHT_BITS // 8
        stream = key_stream(key, context.graph.degree * size, bits=8).tobytes()
        self._of_values = [int.from_bytes(stream[at : at + size], "little") for at in range(0, len(stream), size)]
        # What the coefficients of a polynomial are weighed with, so that its values are weighed as above.
        self._of_coefficients = [
            sum(weight * (row + 1) ** power for row, weight in enumerate(self._of_values)) % ORDER
            for power in range(context.threshold)
        ]

    def agree(self, polynomial: list[int], said: bytes) -> bool:
        """Whether the values of all rows are those of the polynomial."""
        values = sum(map(mul, self._of_values, scalars(said)))
        return (values - sum(map(mul, self._of_coefficients, polynomial))) % ORDER == 0


def _convicts(dealt: _Dealt, dealer: int, accuser: int, point: bytes, proof: bytes) -> bool:
    """Whether the point is what the two agreed on, and with it the dealer's share for the accuser is not valid."""
    context, table = dealt.keys.context, dealt.keys.table
    publics = [lifted(table[index, SEALING_ROW].tobytes()) for index in (accuser, dealer)]
    if not proves(publics[0], publics[1], point, proof, about=pair_of(context, dealer, accuser)):
        return False
    _, opening = sealing_keys(projected(point), context, own=accuser, their=dealer)
    row, keys = _row_at(context, dealer, accuser), table[dealer]
    return valid_share(
        dealt.dealings[dealer], opening, context, dealer=dealer, index=accuser, row=row, keys=keys
    ) is None  # fmt: skip


def _row_at(context: Context, dealer: int, holder: int) -> int:
    """The row of a holder among a dealer's neighbours."""
    return int(np.flatnonzero(context.graph.table[dealer] == holder)[0])
