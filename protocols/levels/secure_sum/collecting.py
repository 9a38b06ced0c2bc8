"""The coordinator's side of a secure sum: it relays, tracks who is left, and opens the sum.

Each `collect_...` takes the replies of one step and names who is left out and why; the others continue. The requests of
a step follow from what was collected. With fewer than `fewest` parties it ends in QuorumLost, and only masked vectors
were seen. The check of what was dealt is in judging.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, UInt8
from numpy import ndarray

from protocols.crypto.edwards import is_public_key
from protocols.errors import ConclaveError, MalformedMessage
from protocols.levels.secure_sum.terms import Context
from protocols.levels.secure_sum.wire import (
    KEYS,
    MASK_ROW,
    MASK_TAG_BYTES,
    PADDED_SIGNATURE_BYTES,
    SEALING_ROW,
    Verify,
    checked,
    keys_statement,
    masked_statement,
    unpadded,
)
from protocols.refusals.code import Code
from protocols.wire.messages import Arrays

# Replies by index; None, or no entry, for a party that gave none.
SeatReplies = Mapping[int, Arrays | None]


class QuorumLost(ConclaveError):
    """Too few parties answered a step; the sum is masked. `left_out`: why, by name.

    To continue, ask the absent parties again with the same request, and collect all replies again. Without them the sum
    stays masked for ever.
    """

    def __init__(self, message: str, left_out: dict[str, str]) -> None:
        super().__init__(message)
        self.left_out = left_out


@dataclass(frozen=True, eq=False)
class Keys:
    """After step 1: the keys of those who advertised. left_out: the code of each party left out so far."""

    context: Context
    present: Bool[ndarray, " parties"]
    table: UInt8[ndarray, "parties 3 32"] = field(repr=False)
    left_out: dict[str, str] = field(default_factory=dict)

    def of_neighbours(self, index: int) -> Arrays:
        """Which neighbours have keys, and the keys."""
        neighbours = self.context.graph.table[index]
        return self.present[neighbours].astype(np.uint8), self.table[neighbours]


@dataclass(frozen=True, eq=False)
class Advertised:
    """Also after step 1: the proofs of whose keys these are. tags: of each party, for its neighbours."""

    keys: Keys
    signatures: UInt8[ndarray, "parties 73"] = field(repr=False)
    tags: UInt8[ndarray, "parties neighbours 16"] = field(repr=False)

    def request(self, index: int) -> Arrays:
        """Step 2's request to a party that is present."""
        graph = self.keys.context.graph
        neighbours = graph.table[index]
        return *self.keys.of_neighbours(index), self.signatures[neighbours], self.tags[neighbours, graph.reverse]


@dataclass(frozen=True, eq=False)
class Shared:
    """After step 3: those whose shares all others have, the hashes of these shares, and what each keeps at the
    coordinator.
    """

    keys: Keys
    present: Bool[ndarray, " parties"]
    commitments: UInt8[ndarray, "parties neighbours 64"] = field(repr=False)
    receipts: UInt8[ndarray, "parties receipt"] = field(repr=False)
    kept: UInt8[ndarray, "parties kept"] = field(repr=False)
    left_out: dict[str, str] = field(default_factory=dict)

    def request(self, index: int) -> Arrays:
        """Step 4's request to a sharer."""
        return self.present.astype(np.uint8), *self.keys.of_neighbours(index), self.receipts[index]


@dataclass(frozen=True, eq=False)
class Masked:
    """After step 4: the sum of the masked vectors of the survivors, and the proofs of with whom each masked its own."""

    shared: Shared
    present: Bool[ndarray, " parties"]
    total: ndarray = field(repr=False)
    signatures: UInt8[ndarray, "parties 73"] = field(repr=False)
    tags: UInt8[ndarray, "parties neighbours 16"] = field(repr=False)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def request(self) -> Arrays:
        """Step 5's request to every survivor."""
        return self.shared.present.astype(np.uint8), self.present.astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Agreed:
    """After step 5: the tags of those who agreed on the survivors, for all others. Only their receivers can check
    them.
    """

    masked: Masked
    present: Bool[ndarray, " parties"]
    tags: UInt8[ndarray, "parties parties 16"] = field(repr=False)
    left_out: dict[str, str] = field(default_factory=dict)

    def request(self, index: int) -> Arrays:
        """Step 6's request to a survivor."""
        masked, graph = self.masked, self.masked.shared.keys.context.graph
        neighbours = graph.table[index]
        proofs = masked.signatures[neighbours], masked.tags[neighbours, graph.reverse]
        agreed = self.present.astype(np.uint8), self.tags[self.present, index]
        return *masked.request, masked.shared.kept[index], *proofs, *agreed


def collect_keys(context: Context, replies: SeatReplies, *, verify: Verify) -> Advertised:
    """Step 1's replies: keys that their owners signed, and with which X25519 agrees on something.

    Nobody but their receivers can check tags. A key that is another member's too is left to step 3: whoever copied it
    can neither deal its private key nor open what is sealed to it. Raises QuorumLost.
    """
    degree = context.graph.degree
    table = np.zeros((context.parties, *KEYS), dtype=np.uint8)
    signatures = np.zeros((context.parties, PADDED_SIGNATURE_BYTES), dtype=np.uint8)
    tags = np.zeros((context.parties, degree, MASK_TAG_BYTES), dtype=np.uint8)

    def take(index: int, reply: Arrays) -> str | None:
        table[index], signatures[index], tags[index] = checked(
            reply,
            ("keys", "|u1", KEYS),
            ("signature", "|u1", (PADDED_SIGNATURE_BYTES,)),
            ("tags", "|u1", (degree, MASK_TAG_BYTES)),
        )
        statement = keys_statement(context.digest, index, table[index])
        if not verify(context.members[index], statement, unpadded(signatures[index])):
            return Code.BAD_SIGNATURE
        sealing, masking = (table[index, row].tobytes() for row in (SEALING_ROW, MASK_ROW))
        return None if sealing != masking and is_public_key(sealing) and is_public_key(masking) else Code.WEAK_KEY

    everyone = np.ones(context.parties, dtype=bool)
    present, left_out = gather(context, everyone, replies, take, {}, "advertised keys", context.fewest)
    return Advertised(Keys(context, present, table, left_out), signatures, tags)


def collect_masked(shared: Shared, replies: SeatReplies, *, verify: Verify) -> Masked:
    """Collects step 4's replies: of those that signed for which sharers they masked. Raises QuorumLost."""
    context, about = shared.keys.context, shared.keys.context.mask_context(shared.present)
    degree, total = context.graph.degree, np.zeros(context.cells, dtype=context.dtype)
    signatures = np.zeros((context.parties, PADDED_SIGNATURE_BYTES), dtype=np.uint8)
    tags = np.zeros((context.parties, degree, MASK_TAG_BYTES), dtype=np.uint8)

    def take(index: int, reply: Arrays) -> str | None:
        masked, signatures[index], tags[index] = checked(
            reply,
            ("masked", context.dtype.str, (context.cells,)),
            ("signature", "|u1", (PADDED_SIGNATURE_BYTES,)),
            ("tags", "|u1", (degree, MASK_TAG_BYTES)),
        )
        statement = masked_statement(context.digest, index, about)
        if not verify(context.members[index], statement, unpadded(signatures[index])):
            return Code.BAD_SIGNATURE
        np.add(total, masked, out=total)
        return None

    present, left_out = gather(
        context, shared.present, replies, take, shared.left_out, "masked their votes", context.fewest
    )
    return Masked(shared, present, total, signatures, tags, left_out)


def collect_agreement(masked: Masked, replies: SeatReplies) -> Agreed:
    """Collects step 5's replies.

    A party that is left out here stays in the sum. Whoever sends wrong tags is not found, and changes nothing: every
    member gets a quorum of right ones from the others. Raises QuorumLost.
    """
    context = masked.shared.keys.context
    tags = np.zeros((context.parties, context.parties, MASK_TAG_BYTES), dtype=np.uint8)

    def take(index: int, reply: Arrays) -> None:
        (tags[index],) = checked(reply, ("tags", "|u1", (context.parties, MASK_TAG_BYTES)))

    present, left_out = gather(
        context, masked.present, replies, take, masked.left_out, "agreed on the survivors", context.quorum
    )
    return Agreed(masked, present, tags, left_out)


def gather(
    context: Context,
    asked: Bool[ndarray, " parties"],
    replies: SeatReplies,
    take: Callable[[int, Arrays], str | None],
    left_out: dict[str, str],
    what: str,
    fewest: int,
) -> tuple[Bool[ndarray, " parties"], dict[str, str]]:
    """Which of the parties asked gave a reply that `take` accepts, and the code of each that did not."""
    present, left_out = np.zeros(context.parties, dtype=bool), dict(left_out)
    for index in np.flatnonzero(asked).tolist():
        fault = reply_fault(replies.get(index), index, take)
        if fault is None:
            present[index] = True
        else:
            left_out[context.members[index]] = fault
    enough(context, present, left_out, what, fewest=fewest)
    return present, left_out


def enough(
    context: Context,
    present: Bool[ndarray, " parties"],
    left_out: dict[str, str],
    what: str,
    *,
    fewest: int | None = None,
) -> None:
    """Raises QuorumLost if fewer parties are present than are needed; fewest: None for the context's."""
    needed = context.fewest if fewest is None else fewest
    if present.sum() < needed:
        raise QuorumLost(f"{int(present.sum())} parties {what}; needed: {needed}", left_out)


def reply_fault(reply: Arrays | None, index: int, take: Callable[[int, Arrays], str | None]) -> str | None:
    """The code of what is wrong with a reply, None if `take` accepts it."""
    if reply is None:
        return Code.ABSENT
    try:
        return take(index, reply)
    except MalformedMessage:
        return Code.MALFORMED
