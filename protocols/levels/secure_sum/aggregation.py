"""Level `secure_sum`: the coordinator sees the noisy histogram, and no vote.

Each party adds its share of the integer noise to its weighted votes, and masks the sum (secure_sum/). The noise of the
honest parties of a quorum is the study's sigma; more parties add more. The coordinator opens the histogram of every
query, refused ones too, and all of it is charged, so an outcome lowers nothing. Parties sign with the keys that the
study's roster names, so a coordinator can neither replace a party's masks nor name different survivors to different
parties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy import ndarray

from protocols.ledger.ledger import Ledger
from protocols.levels.level import Aggregation, Counted, ReservedBatch, code_of
from protocols.levels.secure_sum.authenticator import Verify
from protocols.levels.secure_sum.collecting import (
    Keys,
    Masked,
    QuorumLost,
    Replies,
    Shared,
    collect_agreement,
    collect_keys,
    collect_masked,
)
from protocols.levels.secure_sum.context import Context
from protocols.levels.secure_sum.judging import collect_checks, collect_dealings, settle_disputes
from protocols.levels.secure_sum.opening import open_sum
from protocols.levels.secure_sum.terms import context_of, roster_verifier
from protocols.noise import LatticeNoise
from protocols.refusals.code import Code
from protocols.study.levels import summed
from protocols.study.study import Study
from protocols.wire.messages import (
    HiddenVotes,
    Refusal,
    StepReply,
    StepRequest,
    VoteRequest,
    decode_arrays,
    encode_arrays,
)

_SHARED, _MASKED = "sum_shared", "sum_masked"


class SummedAggregation(Aggregation):
    """The coordinator's side. It draws no noise: what it opens contains the parties' noise.

    Who shared, and whose masked votes were accepted, is noted before the next step, so that an interrupted batch
    continues with the same parties.
    """

    def check_next(self, study: Study, ledger: Ledger) -> None:
        """Nothing: every batch may be followed by another."""

    def count(self, reserved: ReservedBatch) -> Counted:
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
        units = summed(study.confidentiality).units
        noisy = opened.sums.reshape(-1, study.classes) / units
        silent = LatticeNoise(units, lambda count, sigma: np.zeros(count, dtype=np.int64))
        labels, cells = study.released(noisy, silent, predictions=reserved.predictions)
        voted = tuple(np.array(context.members, dtype=object)[masked.present].tolist())
        return Counted(labels, voted, opened.left_out | left_out, cells=cells)

    def released(self, reserved: ReservedBatch) -> None:
        """Forgets what was kept for continuing."""
        for kind in (_SHARED, _MASKED):
            reserved.ledger.forget(reserved.request.digest, kind)

    def _shared(self, reserved: ReservedBatch, context: Context, verify: Verify, left_out: dict[str, str]) -> Shared:
        noted = reserved.ledger.noted(reserved.request.digest, _SHARED)
        if noted is None:
            everyone = np.ones(context.parties, dtype=bool)
            queries = np.array([len(reserved.request.batch.ids)], dtype=np.int64)
            replies = self._step(reserved, "sum_keys", everyone, lambda _: (queries,), left_out)
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

    def _votes(self, reserved: ReservedBatch, shared: Shared, left_out: dict[str, str]) -> Replies:
        request, seats = reserved.request, reserved.study.seats
        asking = {
            name: VoteRequest(request.study, request.run, request.batch, shared.request(seats[name]))
            for name in np.array(shared.keys.context.members, dtype=object)[shared.present].tolist()
        }
        found: dict[int, tuple[ndarray, ...] | None] = {}
        for name, reply in reserved.exchange(asking).items():
            if isinstance(reply, Refusal):
                left_out[name] = code_of(reply)
            elif isinstance(reply, HiddenVotes) and reply.batch_digest == request.digest:
                found[seats[name]] = reply.arrays
        return found

    def _step(
        self,
        reserved: ReservedBatch,
        step: str,
        present: ndarray,
        request: Callable[[int], tuple[ndarray, ...]],
        left_out: dict[str, str],
    ) -> Replies:
        """One step with every party that is present; the codes of refusals go into left_out."""
        study, digest = reserved.study, reserved.request.digest
        asking = {
            study.roster[index].party: StepRequest(study.digest, digest, step, request(index))
            for index in np.flatnonzero(present).tolist()
        }
        found: dict[int, tuple[ndarray, ...] | None] = {}
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
