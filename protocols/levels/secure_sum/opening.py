"""Opening the sum: secrets from shares, and masks off (Bonawitz et al. 2017, Figure 4, round 4).

Every share was checked before anybody masked (judging.py), and its hash is known, so a wrong one shows, and any
`threshold` right ones give what the masks were made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.crypto.edwards import lifted, multiple, private_key, projected
from protocols.crypto.masked_ring import from_ring
from protocols.crypto.masks import KEY_BYTES, MaskSum, agreed
from protocols.crypto.shamir import reconstruct
from protocols.levels.secure_sum.batch_secret import pair_mask_key, pair_of, self_mask_key
from protocols.levels.secure_sum.collecting import Agreed, Masked, QuorumLost, Replies, reply_fault
from protocols.levels.secure_sum.context import Context
from protocols.levels.secure_sum.dealing import COMMITMENT_BYTES, commitment
from protocols.levels.secure_sum.wire import MASK_KEY, SECRETS, SEED, Arrays, checked, rows_of
from protocols.refusals.code import Code


@dataclass(frozen=True, eq=False)
class Opened:
    """The sum of the survivors' values. left_out: why others are not in it; faults: of parties that are.

    A fault in the last steps removes nothing from the sum: absent, malformed, bad_signature; wrong_share: a share that
    is not the one that the party found valid.
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
    seeds, keys = (
        gathered.secrets(wanted, faults) for wanted in (masked.present, masked.shared.present & ~masked.present)
    )
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
    """Shares of the last step, as they arrive: by owner, the holder's row and the share."""

    def __init__(self, masked: Masked) -> None:
        self.context = masked.shared.keys.context
        self._kinds = np.where(masked.present, SEED, MASK_KEY)
        self._sharers = masked.shared.present
        size = self.context.parties, self.context.graph.degree, SECRETS, COMMITMENT_BYTES
        self._commitments = masked.shared.commitments.reshape(size)
        self._shares: dict[int, list[tuple[int, bytes]]] = {
            owner: [] for owner in np.flatnonzero(self._sharers).tolist()
        }

    def take(self, index: int, reply: Arrays) -> str | None:
        context, graph = self.context, self.context.graph
        (shares,) = checked(reply, ("shares", "|u1", (graph.degree, KEY_BYTES)))
        neighbours, fault = graph.neighbours(index), None
        sharing = np.flatnonzero(self._sharers[neighbours])
        owners, kinds = neighbours[sharing].tolist(), self._kinds[neighbours[sharing]]
        committed = self._commitments[neighbours[sharing], graph.reverse[sharing], kinds]
        offered = zip(owners, kinds.tolist(), graph.reverse[sharing].tolist(), rows_of(shares[sharing]), strict=True)
        for (owner, kind, row, share), right in zip(offered, rows_of(committed), strict=True):
            if commitment(pair_of(context, owner, index), kind, share) != right:
                fault = Code.WRONG_SHARE
                continue
            self._shares[owner].append((row, share))
        return fault

    def secrets(self, wanted: Bool[ndarray, " parties"], faults: dict[str, str]) -> dict[int, int]:
        """The secrets of the wanted parties, which were asked for."""
        threshold, names, opened, short = self.context.threshold, self.context.members, {}, []
        for owner in np.flatnonzero(wanted).tolist():
            if len(self._shares[owner]) < threshold:
                short.append(names[owner])
                continue
            first = sorted(self._shares[owner])[:threshold]
            shares = [int.from_bytes(share, "little") for _, share in first]
            opened[owner] = reconstruct([row for row, _ in first], shares)
        if short:
            raise QuorumLost(
                f"of {', '.join(short)} there are fewer than {threshold} shares",
                faults | dict.fromkeys(short, Code.TOO_FEW_SHARES),
            )
        return opened


def _masks(masked: Masked, seeds: Mapping[int, int], keys: Mapping[int, int]) -> ndarray:
    """The masks in the survivors' total: their self masks, and those that they share with parties that dropped out."""
    context: Context = masked.shared.keys.context
    table, about = masked.shared.keys.table, context.mask_context(masked.shared.present)
    publics = rows_of(table[:, MASK_KEY])
    masks = MaskSum(context.cells, bits=context.bits)
    for index, seed in seeds.items():
        masks.add(self_mask_key(seed, context, index), sign=1)
    pairs: list[tuple[bytes, int]] = []
    for dropped, scalar in keys.items():
        neighbours = context.graph.neighbours(dropped)
        agree = _agreement(scalar)
        for survivor in neighbours[masked.present[neighbours]].tolist():
            both = publics[dropped], publics[survivor]
            pair = pair_mask_key(agree(both[1]), about, (dropped, survivor), both)
            pairs.append((pair, 1 if survivor < dropped else -1))
    for pair, sign in pairs:
        masks.add(pair, sign=sign)
    return masks.total


def _agreement(scalar: int) -> Callable[[bytes], bytes]:
    """What X25519 gives with an opened private key, also with one that no honest party has."""
    own = private_key(scalar)
    if own is None:
        return lambda public: projected(multiple(scalar, lifted(public)))
    key = X25519PrivateKey.from_private_bytes(own)
    return lambda public: agreed(key, public)
