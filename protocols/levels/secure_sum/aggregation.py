"""Level `secure_sum`, the coordinator's side: it collects masked votes and opens the noisy sum.

Opening the sum: secrets from shares, and masks off (Bonawitz et al. 2017, Figure 4, round 4).

A survivor gives its own seed. What dropped out, and the seeds of those that left last, are opened from shares, which
were checked before anybody masked (judging.py), and whose hashes are known: wrong ones show, and any `threshold` right
ones give the secret.

Level `secure_sum`: the coordinator sees the noisy histogram, and no vote.

Each party adds its share of the integer noise to its weighted votes, and masks the sum (secure_sum/). The noise of the
honest parties of a quorum is the study's sigma; more parties add more. The coordinator opens the histogram of every
query, refused ones too, and all of it is charged, so an outcome lowers nothing. Parties sign with the keys that the
study's roster names, so a coordinator can neither replace a party's masks nor name different survivors to different
parties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.crypto.edwards import ORDER, SCALAR_BYTES, cleared, lifted, multiple, private_key, projected
from protocols.crypto.masks import KEY_BYTES, MaskSum, agreed
from protocols.crypto.rings import from_ring
from protocols.crypto.shamir import reconstruct
from protocols.ledger.ledger import Ledger
from protocols.levels.level import Aggregation, Counted, ReservedBatch, code_of
from protocols.levels.secure_sum.collecting import (
    Agreed,
    Keys,
    Masked,
    QuorumLost,
    SeatReplies,
    Shared,
    collect_agreement,
    collect_keys,
    collect_masked,
    reply_fault,
)
from protocols.levels.secure_sum.dealing import COMMITMENT_BYTES, pair_mask_key, pair_of, self_mask_key, share_hash
from protocols.levels.secure_sum.judging import collect_checks, collect_dealings, settle_disputes
from protocols.levels.secure_sum.terms import Context, context_of, roster_verifier
from protocols.levels.secure_sum.wire import (
    COMMITMENT_ROW,
    MASK_KEY,
    MASK_ROW,
    SECRET_KINDS,
    SEED,
    Verify,
    checked,
    commitment,
    rows_of,
)
from protocols.noise import LatticeNoise
from protocols.refusals.code import Code
from protocols.study.levels import summed
from protocols.study.study import Study
from protocols.wire.messages import (
    Arrays,
    ConcealedVotes,
    Refusal,
    StepReply,
    StepRequest,
    VoteRequest,
    decode_arrays,
    encode_arrays,
)


@dataclass(frozen=True, eq=False)
class _Opened:
    """The sum of the survivors' values. left_out: why others are not in it; faults: of parties that are.

    A fault in the last steps removes nothing from the sum: absent, malformed; wrong_seed: its own seed; wrong_share: a
    share that is not the one that the party found valid, of those that were needed.
    """

    sums: Int64[ndarray, " cells"] = field(repr=False)
    survivors: Bool[ndarray, " parties"]
    left_out: dict[str, str]
    faults: dict[str, str]


def open_sum(agreement: Agreed, replies: SeatReplies) -> _Opened:
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
    return _Opened(
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
        self._committed = masked.shared.commitments.reshape(*size, SECRET_KINDS, COMMITMENT_BYTES)
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


_SHARED, _MASKED = "sum_shared", "sum_masked"


class SummedAggregation(Aggregation):
    """The coordinator's side. It draws no noise: what it opens contains the parties' noise.

    Who shared, and whose masked votes were accepted, is noted before the next step, so that an interrupted batch
    continues with the same parties.
    """

    def check_next(self, study: Study, ledger: Ledger) -> None:
        """Nothing: every batch may be followed by another."""

    def count(self, reserved: ReservedBatch) -> Counted:
        counted = self._counted(reserved)
        left_out = {seat: code for seat, code in counted.left_out.items() if seat in reserved.seats}
        return replace(counted, left_out=left_out)

    def _counted(self, reserved: ReservedBatch) -> Counted:
        study = reserved.study
        context = context_of(study, reserved.request.digest, queries=len(reserved.request.batch.ids))
        verify = roster_verifier(study)
        left_out: dict[str, str] = {}
        try:
            shared = self._shared(reserved, context, verify, left_out)
            masked = self._masked(reserved, shared, verify, left_out)
            agreed = collect_agreement(
                masked, self._step(reserved, "sum_agree", masked.present, lambda _: masked.request, {})
            )
            opened = open_sum(agreed, self._step(reserved, "sum_open", agreed.present, agreed.request, {}))
        except QuorumLost as error:
            return Counted(None, (), error.left_out | left_out)
        voted = tuple(np.array(context.members, dtype=object)[masked.present].tolist())
        if study.votes.again(reserved.request.batch.ids):
            sums = opened.sums.reshape(-1, study.classes)
            answered = np.zeros(len(sums), dtype=np.int64)
            return Counted(answered, voted, opened.left_out | left_out, cells=sums.astype(np.int64))
        units = summed(study.confidentiality).units
        noisy = opened.sums.reshape(-1, study.classes) / units
        silent = LatticeNoise(units, lambda count, sigma: np.zeros(count, dtype=np.int64))
        labels, cells = study.released(noisy, silent, predictions=reserved.predictions)
        return Counted(labels, voted, opened.left_out | left_out, cells=cells)

    def released(self, reserved: ReservedBatch) -> None:
        """Forgets what was kept for continuing."""
        for kind in (_SHARED, _MASKED):
            reserved.ledger.forget(reserved.request.digest, kind)

    def _shared(self, reserved: ReservedBatch, context: Context, verify: Verify, left_out: dict[str, str]) -> Shared:
        noted = reserved.ledger.noted(reserved.request.digest, _SHARED)
        if noted is None:
            # Of the roster, whose masks the context is of, nobody takes part but those that the batch is charged to.
            asked = np.array([name in reserved.seats for name in context.members])
            queries = np.array([len(reserved.request.batch.ids)], dtype=np.int64)
            replies = self._step(reserved, "sum_keys", asked, lambda _: (queries,), left_out)
            advertised = collect_keys(context, replies, verify=verify)
            keys = advertised.keys
            dealt = collect_dealings(
                keys, self._step(reserved, "sum_shares", keys.present, advertised.request, left_out)
            )
            replies = self._step(reserved, "sum_check", dealt.present, dealt.request, left_out)
            found = collect_checks(dealt, replies, verify=verify)
            accusers = np.isin(np.arange(context.parties), list(found.disputes))
            shared = settle_disputes(found, self._step(reserved, "sum_dispute", accusers, found.request, left_out))
            _add_missing(left_out, shared.left_out)
            arrays = (keys.present, keys.table, shared.present, shared.commitments, shared.receipts, shared.kept)
            noted = reserved.ledger.note(reserved.request.digest, _SHARED, encode_arrays(arrays))
        present, table, sharers, commitments, receipts, kept = decode_arrays(noted)
        absent: dict[str, str] = {
            name: Code.ABSENT for name, there in zip(context.members, sharers.tolist(), strict=True) if not there
        }
        return Shared(Keys(context, present, table), sharers, commitments, receipts, kept, absent)

    def _masked(self, reserved: ReservedBatch, shared: Shared, verify: Verify, left_out: dict[str, str]) -> Masked:
        noted = reserved.ledger.noted(reserved.request.digest, _MASKED)
        if noted is None:
            masked = collect_masked(shared, self._votes(reserved, shared, left_out), verify=verify)
            _add_missing(left_out, masked.left_out)
            arrays = (masked.present, masked.total, masked.signatures, masked.tags)
            noted = reserved.ledger.note(reserved.request.digest, _MASKED, encode_arrays(arrays))
        present, total, signatures, tags = decode_arrays(noted)
        members = shared.keys.context.members
        absent: dict[str, str] = {
            name: Code.ABSENT for name, there in zip(members, present.tolist(), strict=True) if not there
        }
        return Masked(shared, present, total.copy(), signatures, tags, absent)

    def _votes(self, reserved: ReservedBatch, shared: Shared, left_out: dict[str, str]) -> SeatReplies:
        request, seats = reserved.request, reserved.study.seats
        asking = {
            name: VoteRequest(request.study, request.run, request.batch, shared.request(seats[name]))
            for name in np.array(shared.keys.context.members, dtype=object)[shared.present].tolist()
        }
        found: dict[int, Arrays | None] = {}
        for name, reply in reserved.exchange(asking).items():
            if isinstance(reply, Refusal):
                left_out[name] = code_of(reply)
            elif isinstance(reply, ConcealedVotes) and reply.batch_digest == request.digest:
                found[seats[name]] = reply.arrays
        return found

    def _step(
        self,
        reserved: ReservedBatch,
        step: str,
        present: ndarray,
        request: Callable[[int], Arrays],
        left_out: dict[str, str],
    ) -> SeatReplies:
        """One step with every party that is present; the codes of refusals go into left_out."""
        study, digest = reserved.study, reserved.request.digest
        asking = {
            study.roster[index].party: StepRequest(study.digest, digest, step, request(index))
            for index in np.flatnonzero(present).tolist()
        }
        found: dict[int, Arrays | None] = {}
        if not asking:
            return found
        for name, reply in reserved.exchange(asking).items():
            if isinstance(reply, Refusal):
                left_out[name] = code_of(reply)
            elif isinstance(reply, StepReply) and (reply.batch_digest, reply.step) == (digest, step):
                found[study.seats[name]] = reply.arrays
        return found


def openers(ledger: Ledger, digest: bytes) -> list[int] | None:
    """Which seats of the roster can still open a batch, by index; None until that is fixed."""
    for kind, sharers in ((_MASKED, 0), (_SHARED, 2)):
        if (noted := ledger.noted(digest, kind)) is not None:
            return [int(at) for at in np.flatnonzero(decode_arrays(noted)[sharers])]
    return None


def _add_missing(left_out: dict[str, str], codes: Mapping[str, str]) -> None:
    """Adds codes for parties that have none yet: a refusal is more informative than a missing reply."""
    for name, code in codes.items():
        left_out.setdefault(name, code)
