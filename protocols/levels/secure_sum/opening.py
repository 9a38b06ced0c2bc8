"""Opening the sum: secrets from shares, and masks off (Bonawitz et al. 2017, Figure 4, round 4).

A survivor gives its own seed. What dropped out, and the seeds of those that left last, are opened from shares, which
were checked before anybody masked (judging.py), and whose hashes are known: wrong ones show, and any `threshold` right
ones give the secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.crypto.edwards import ORDER, SCALAR_BYTES, cleared, lifted, multiple, private_key, projected
from protocols.crypto.masked_ring import from_ring
from protocols.crypto.masks import KEY_BYTES, MaskSum, agreed
from protocols.crypto.shamir import reconstruct
from protocols.levels.secure_sum.batch_secret import pair_mask_key, pair_of, self_mask_key
from protocols.levels.secure_sum.collecting import Agreed, Masked, QuorumLost, Replies, reply_fault
from protocols.levels.secure_sum.context import Context
from protocols.levels.secure_sum.dealing import COMMITMENT_BYTES, share_hash
from protocols.levels.secure_sum.wire import (
    COMMITMENT_ROW,
    MASK_KEY,
    MASK_ROW,
    SECRETS,
    SEED,
    Arrays,
    checked,
    commitment,
    rows_of,
)
from protocols.refusals.code import Code


@dataclass(frozen=True, eq=False)
class Opened:
    """The sum of the survivors' values. left_out: why others are not in it; faults: of parties that are.

    A fault in the last steps removes nothing from the sum: absent, malformed; wrong_seed: its own seed; wrong_share: a
    share that is not the one that the party found valid, of those that were needed.
    """

    sums: Int64[ndarray, " cells"] = field(repr=False)
    survivors: Bool[ndarray, " parties"]
    left_out: dict[str, str]
    faults: dict[str, str]


def open_sum(agreement: Agreed, replies: Replies) -> Opened:
    """Collects step 6's replies and opens the sum. Raises QuorumLost, naming whose secret cannot be opened."""
    masked = agreement.masked
    gathered = _Gathered(masked)
    faults = dict(agreement.left_out)
    for index in np.flatnonzero(masked.present).tolist():
        fault = reply_fault(replies.get(index), index, gathered.take)
        if fault is not None:
            faults.setdefault(gathered.context.members[index], fault)
    seeds, keys = gathered.secrets(faults)
    sums = from_ring(masked.total - _masks(masked, seeds, keys))
    names = gathered.context.members
    survivors = {names[index] for index in np.flatnonzero(masked.present).tolist()}
    return Opened(
        sums,
        masked.present,
        {name: code for name, code in faults.items() if name not in survivors},
        {name: code for name, code in faults.items() if name in survivors},
    )


class _Gathered:
    """Seeds and shares of the last step, as they arrive."""

    def __init__(self, masked: Masked) -> None:
        self.masked, self.context = masked, masked.shared.keys.context
        # By holder and row, as sent.
        size = self.context.parties, self.context.graph.degree
        self._shares, self._given = np.zeros((*size, KEY_BYTES), dtype=np.uint8), np.zeros(size[0], dtype=bool)
        self._committed = masked.shared.commitments.reshape(*size, SECRETS, COMMITMENT_BYTES)
        self._seeds: dict[int, int] = {}

    def take(self, index: int, reply: Arrays) -> str | None:
        seed, self._shares[index] = checked(
            reply, ("seed", "|u1", (SCALAR_BYTES,)), ("shares", "|u1", (self.context.graph.degree, KEY_BYTES))
        )
        self._given[index] = True
        committed = self.masked.shared.keys.table[index, COMMITMENT_ROW].tobytes()
        if commitment(self.context.digest, index, seed.tobytes()) != committed:
            return Code.WRONG_SEED
        self._seeds[index] = int.from_bytes(seed.tobytes(), "little")
        return None

    def secrets(self, faults: dict[str, str]) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """The seeds of all survivors, and the mask keys of all who shared and did not survive."""
        masked, short = self.masked, []
        lost = [index for index in np.flatnonzero(masked.present).tolist() if index not in self._seeds]
        dropped = np.flatnonzero(masked.shared.present & ~masked.present).tolist()
        opened: dict[int, int] = {}
        for owner, kind in [(index, SEED) for index in lost] + [(index, MASK_KEY) for index in dropped]:
            shares = self._right_shares(owner, kind, faults)
            if len(shares) < self.context.threshold:
                short.append(self.context.members[owner])
                continue
            opened[owner] = reconstruct(list(shares), list(shares.values()), among=self.context.graph.degree)
        if short:
            raise QuorumLost(
                f"of {', '.join(short)} there are fewer than {self.context.threshold} shares",
                faults | dict.fromkeys(short, Code.TOO_FEW_SHARES),
            )
        return self._seeds | {index: opened[index] for index in lost}, {index: opened[index] for index in dropped}

    def _right_shares(self, owner: int, kind: int, faults: dict[str, str]) -> dict[int, int]:
        """The shares of a secret by the holder's row; names the holders whose shares are others than were dealt."""
        graph, right = self.context.graph, {}
        holders = graph.table[owner]
        rows = np.flatnonzero(self._given[holders])
        shares = rows_of(self._shares[holders[rows], graph.reverse[rows]]) if rows.size else []
        for row, share in zip(rows.tolist(), shares, strict=True):
            holder = int(holders[row])
            hashed = share_hash(pair_of(self.context, owner, holder), kind, share)
            if hashed == self._committed[owner, row, kind].tobytes():
                right[row] = int.from_bytes(share, "little")
            else:
                faults.setdefault(self.context.members[holder], Code.WRONG_SHARE)
        return right


def _masks(masked: Masked, seeds: Mapping[int, int], keys: Mapping[int, int]) -> ndarray:
    """The masks in the survivors' total: their self masks, and those that they share with parties that dropped out."""
    context: Context = masked.shared.keys.context
    table, about = masked.shared.keys.table, context.mask_context(masked.shared.present)
    publics = rows_of(table[:, MASK_ROW])
    masks = MaskSum(context.cells, bits=context.bits)
    for index, seed in seeds.items():
        masks.add(self_mask_key(seed, context, index), sign=1)
    pairs: list[tuple[bytes, int]] = []
    for dropped, scalar in keys.items():
        neighbours = context.graph.table[dropped]
        agree = _agreement(scalar)
        for survivor in neighbours[masked.present[neighbours]].tolist():
            both = publics[dropped], publics[survivor]
            pair = pair_mask_key(agree(both[1]), about, (dropped, survivor), both)
            pairs.append((pair, 1 if survivor < dropped else -1))
    for pair, sign in pairs:
        masks.add(pair, sign=sign)
    return masks.total


def _agreement(scalar: int) -> Callable[[bytes], bytes]:
    """What X25519 gives with an opened private key, also with one that no honest party has.

    As X25519's own private keys, it takes no notice of a component of small order in a public key.
    """
    own = private_key(scalar)
    if own is None:
        eighth = scalar * pow(8, -1, ORDER) % ORDER
        return lambda public: projected(multiple(eighth, cleared(lifted(public))))
    key = X25519PrivateKey.from_private_bytes(own)
    return lambda public: agreed(key, public)
