"""Opening the sum: secrets from shares, and masks off (Bonawitz et al. 2017, Figure 4, round 4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Bool, Int64, UInt8
from numpy import ndarray

from protocols.crypto import shamir
from protocols.crypto.masked_ring import from_ring
from protocols.crypto.masks import KEY_BYTES, MaskSum, agreed
from protocols.errors import MalformedMessage
from protocols.levels.secure_sum.batch_secret import pair_mask_key
from protocols.levels.secure_sum.collecting import Agreed, Masked, QuorumLost, Replies, reply_fault
from protocols.levels.secure_sum.context import Context
from protocols.levels.secure_sum.wire import (
    KEY_SHARE,
    NOT_OPENED,
    NOTHING,
    SEED_SHARE,
    Arrays,
    checked,
    commitment,
    rows_of,
)

# Random combinations that are tried to find wrong shares; each misses with probability 1/255.
_COINS = 4


@dataclass(frozen=True, eq=False)
class Opened:
    """The sum of the survivors' values. left_out: why others are not in it; faults: of parties that are.

    A fault in the last steps removes nothing from the sum: absent, malformed, bad_signature; wrong_seed: its own seed;
    wrong_share: a share off the others' polynomial, perhaps as dealt; unopened_shares: sealed shares of this party did
    not open at a neighbour, by the neighbour's word.
    """

    sums: Int64[ndarray, " cells"] = field(repr=False)
    survivors: Bool[ndarray, " parties"]
    left_out: dict[str, str]
    faults: dict[str, str]


def open_sum(agreement: Agreed, replies: Replies) -> Opened:
    """Collects step 5's replies and opens the sum. Raises QuorumLost, naming whose secret cannot be opened."""
    masked = agreement.masked
    gathered = _Gathered(masked, dict(agreement.left_out))
    for index in np.flatnonzero(masked.present).tolist():
        fault = reply_fault(replies.get(index), index, gathered.take)
        if fault is not None:
            gathered.faults.setdefault(gathered.context.members[index], fault)
    seeds, keys = gathered.secrets()
    sums = from_ring(masked.total - _masks(masked, seeds, keys))
    names = gathered.context.members
    survivors = {names[index] for index in np.flatnonzero(masked.present).tolist()}
    return Opened(
        sums,
        masked.present,
        {name: code for name, code in gathered.faults.items() if name not in survivors},
        {name: code for name, code in gathered.faults.items() if name in survivors},
    )


class _Gathered:
    """Shares and seeds of the last step, as they arrive."""

    def __init__(self, masked: Masked, faults: dict[str, str]) -> None:
        self.masked, self.context, self.faults = masked, masked.shared.keys.context, faults
        graph = self.context.graph
        # By holder and row, as sent; and what each must be.
        self._shares = np.zeros((self.context.parties, graph.degree, KEY_BYTES), dtype=np.uint8)
        self._given = np.zeros((self.context.parties, graph.degree), dtype=bool)
        self._seeds: dict[int, bytes] = {}
        status = np.where(masked.present, SEED_SHARE, np.where(masked.shared.present, KEY_SHARE, NOTHING))
        self._kinds = status.astype(np.uint8)[graph.table]

    def take(self, index: int, reply: Arrays) -> str | None:
        degree = self.context.graph.degree
        seed, kinds, shares = checked(
            reply,
            ("seed", "|u1", (KEY_BYTES,)),
            ("kinds", "|u1", (degree,)),
            ("shares", "|u1", (degree, KEY_BYTES)),
        )
        given = kinds == self._kinds[index]
        unopened = (kinds == NOT_OPENED) & (self._kinds[index] != NOTHING)
        if not (given | unopened).all():
            raise MalformedMessage("kinds: a share of another kind than was asked for")
        self._shares[index], self._given[index] = shares, given & (kinds != NOTHING)
        for sender in self.context.graph.neighbours(index)[unopened].tolist():
            self.faults.setdefault(self.context.members[sender], "unopened_shares")
        if not self._is_seed(index, seed.tobytes()):
            return "wrong_seed"
        self._seeds[index] = seed.tobytes()
        return None

    def secrets(self) -> tuple[list[bytes], dict[int, X25519PrivateKey]]:
        """The seeds of all survivors, and the mask keys of all who shared and did not survive."""
        lost = [index for index in np.flatnonzero(self.masked.present).tolist() if index not in self._seeds]
        dropped = np.flatnonzero(self.masked.shared.present & ~self.masked.present).tolist()
        opened = self._reconstructed(np.array(lost + dropped, dtype=np.int64))
        seeds = list(self._seeds.values()) + [opened[index] for index in lost]
        return seeds, {index: X25519PrivateKey.from_private_bytes(opened[index]) for index in dropped}

    def _reconstructed(self, owners: Int64[ndarray, " secrets"]) -> dict[int, bytes]:
        """The secret of each owner: all at once, and those with wrong shares one by one."""
        graph, threshold = self.context.graph, self.context.threshold
        if not owners.size:
            return {}
        holders, rows = graph.table[owners], np.broadcast_to(graph.reverse, (len(owners), graph.degree))
        available, shares = self._given[holders, rows], self._shares[holders, rows]
        if (short := available.sum(axis=1) < threshold).any():
            self._lose(owners[short].tolist(), f"fewer than {threshold} shares", "too_few_shares")
        chosen = np.argsort(~available, axis=1, kind="stable")[:, :threshold]
        secrets = shamir.reconstruct(chosen, np.take_along_axis(shares, chosen[:, :, None], axis=1))
        opened = {}
        for place, owner in enumerate(owners.tolist()):
            secret = secrets[place].tobytes()
            if not self._is_secret(owner, secret):
                secret = self._corrected(owner, holders[place], available[place], shares[place])
            opened[owner] = secret
        return opened

    def _corrected(
        self,
        owner: int,
        holders: Int64[ndarray, " neighbours"],
        available: Bool[ndarray, " neighbours"],
        shares: UInt8[ndarray, "neighbours 32"],
    ) -> bytes:
        """The secret without its wrong shares, whose holders are named."""
        rows, threshold = np.flatnonzero(available), self.context.threshold
        for coin in range(_COINS):
            wrong = shamir.wrong_shares(rows, shares[rows], threshold=threshold, coin=coin)
            right = np.delete(rows, wrong)[None, :threshold]
            if right.shape[1] < threshold:
                continue
            secret = shamir.reconstruct(right, shares[right])[0].tobytes()
            if self._is_secret(owner, secret):
                for holder in holders[rows[wrong]].tolist():
                    self.faults.setdefault(self.context.members[holder], "wrong_share")
                return secret
        return self._lose([owner], "shares that do not give what it committed to", "inconsistent_shares")

    def _is_secret(self, owner: int, secret: bytes) -> bool:
        if self.masked.present[owner]:
            return self._is_seed(owner, secret)
        public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        return public == self.masked.shared.keys.table[owner, 1].tobytes()

    def _is_seed(self, owner: int, seed: bytes) -> bool:
        return commitment(self.context.digest, owner, seed) == self.masked.shared.keys.table[owner, 2].tobytes()

    def _lose(self, owners: list[int], why: str, code: str) -> bytes:
        names = [self.context.members[owner] for owner in owners]
        raise QuorumLost(f"of {', '.join(names)} there are {why}", self.faults | dict.fromkeys(names, code))


def _masks(masked: Masked, seeds: list[bytes], keys: dict[int, X25519PrivateKey]) -> ndarray:
    """The masks in the survivors' total: their self masks, and those that they share with parties that dropped out."""
    context: Context = masked.shared.keys.context
    table, about = masked.shared.keys.table, context.mask_context(masked.shared.present)
    publics = rows_of(table[:, 1])
    pairs: list[tuple[bytes, int]] = []
    for dropped, key in keys.items():
        neighbours = context.graph.neighbours(dropped)
        for survivor in neighbours[masked.present[neighbours]].tolist():
            both = publics[dropped], publics[survivor]
            pair = pair_mask_key(agreed(key, both[1]), about, (dropped, survivor), both)
            pairs.append((pair, 1 if survivor < dropped else -1))
    masks = MaskSum(context.cells, bits=context.bits)
    for seed in seeds:
        masks.add(seed, sign=1)
    for pair, sign in pairs:
        masks.add(pair, sign=sign)
    return masks.total
