"""Level `secure_sum`: the coordinator sees the noisy histogram, and no vote.

Each party adds its share of the integer noise to its weighted votes, and masks the sum (secure_sum/). The noise of the
honest parties of a quorum is the study's sigma; more parties add more. What the coordinator opens is the histogram that
is paid for, refused queries too, so an outcome settles nothing downwards. Parties sign with the keys that the study's
roster names, so that a coordinator can neither replace a party's masks nor tell parties of different survivors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from numpy import ndarray

from protocols.accounting.distributed_noise import share_sigma
from protocols.accounting.ledger import Ledger
from protocols.aggregation.aggregation import Aggregation, Asked, Ballot, Counted, Votes, code_of
from protocols.aggregation.secure_sum import party
from protocols.aggregation.secure_sum.authenticator import PairwiseAuthenticator, Verify, public_keys, verifier
from protocols.aggregation.secure_sum.context import Context
from protocols.aggregation.secure_sum.coordinator import (
    Keys,
    Masked,
    QuorumLost,
    Replies,
    Shared,
    collect_keys,
    collect_masked,
    collect_shares,
    collect_signatures,
)
from protocols.aggregation.secure_sum.opening import open_sum
from protocols.aggregation.secure_sum.ring import check_ring
from protocols.discrete_gaussian import discrete_gaussian
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.identity import sign
from protocols.messages import (
    HiddenVotes,
    Outcome,
    Refusal,
    StepReply,
    StepRequest,
    VoteRequest,
    decode_arrays,
    encode_arrays,
)
from protocols.noise import LatticeNoise
from protocols.randomness import RandomSource
from protocols.stream import expanded_source
from protocols.study import Study
from protocols.votes import count_votes

_SECRET_BYTES = 32
# Batches whose keys were asked for and which were never charged: the newest are kept.
_OPEN_SUMS = 8
_SECRET, _MASKING, _SURVIVORS, _CELLS = "sum_secret", "sum_masking", "sum_survivors", "sum_cells"
# All that a party keeps of a batch: what it has masked with is fixed as long as it has the secret.
_NOTES = (_SECRET, _MASKING, _SURVIVORS, _CELLS)
_SHARED, _MASKED = "sum_shared", "sum_masked"


class SummedBallot(Ballot):
    """One seat's side. key: the private half of the seat's signing_key; source: the operating system's on a node.

    Raises InvalidInput for a key that is not the roster's.
    """

    def __init__(
        self,
        study: Study,
        seat: str,
        *,
        ledger: Ledger,
        key: ec.EllipticCurvePrivateKey,
        source: RandomSource,
        noise_source: RandomSource | None = None,
    ) -> None:
        """noise_source: of the noise alone, for simulations that draw it again; the batch's secret if None."""
        self._study = study
        self._index = study.seats[seat]
        self._ledger = ledger
        self._source = source
        self._noise_source = noise_source
        self._noise_sigma = noise_share(study)
        self._latest: Context | None = None
        self._authenticator = PairwiseAuthenticator(study.digest, seat, key=key, publics=_roster_keys(study))
        if not self._authenticator.verify(seat, b"", sign(key, b"")):
            raise InvalidInput(f"the key of {seat!r} is not the one that study {study.name!r} names for it")

    def step(self, request: StepRequest) -> StepReply:
        steps = {
            "sum_keys": self._advertise,
            "sum_shares": self._share,
            "sum_agree": self._agree,
            "sum_open": self._open,
        }
        if request.step not in steps:
            raise Refused("no_such_step", f"step {request.step!r}; allowed: {', '.join(steps)}")
        return StepReply(request.batch_digest, request.step, steps[request.step](request))

    def cast(self, request: VoteRequest, votes: Votes) -> HiddenVotes:
        study, digest = self._study, request.digest
        queries = len(request.batch.ids).to_bytes(8, "big")
        if self._ledger.note(digest, _CELLS, queries) != queries:
            raise Refused("other_shape", "the batch has another number of queries than its keys were asked for")
        context, secret = self._context(digest), self._secret(digest)
        note = self._ledger.note(digest, _MASKING, party.masking_note(context, self._index, request.relayed))
        counts = count_votes(votes()[None], study.weights[[self._index]], classes=study.classes)
        lattice = study.lattice
        assert lattice is not None
        # Of the batch's secret, as the masks are: a ledger that was restored to before its last charge masks the same.
        source = self._noise_source or expanded_source(secret, label="noise share")
        noise = discrete_gaussian(source, sigma=self._noise_sigma, size=counts.size)
        values = np.rint(counts.ravel() * lattice.units).astype(np.int64) + noise
        return HiddenVotes(digest, party.mask(secret, context, self._index, request.relayed, values, noted=note))

    def settle(self, outcome: Outcome) -> None:
        """The histogram was paid for whatever was answered: the outcome lowers nothing. The secrets are forgotten."""
        for kind in _NOTES:
            self._ledger.forget(outcome.batch_digest, kind)

    def _advertise(self, request: StepRequest) -> tuple[ndarray, ...]:
        (queries,) = _queries(request.arrays)
        if not 1 <= queries <= self._study.batch_limit:
            raise Refused("batch_too_large", f"{queries} queries; allowed: 1 to {self._study.batch_limit} in a batch")
        if self._ledger.number_of(request.batch_digest) is None:
            self._ledger.note(request.batch_digest, _SECRET, self._source(_SECRET_BYTES))
            self._ledger.note(request.batch_digest, _CELLS, queries.to_bytes(8, "big"))
            self._ledger.forget_uncharged(*_NOTES, keep=_OPEN_SUMS)
        context = self._context(request.batch_digest)
        secret = self._secret(request.batch_digest)
        return party.advertise(secret, context, self._index, authenticator=self._authenticator)

    def _share(self, request: StepRequest) -> tuple[ndarray, ...]:
        context, secret = self._context(request.batch_digest), self._secret(request.batch_digest)
        return party.share(secret, context, self._index, request.arrays, authenticator=self._authenticator)

    def _agree(self, request: StepRequest) -> tuple[ndarray, ...]:
        digest, context = request.batch_digest, self._context(request.batch_digest)
        masked = self._masked(digest)
        noted = self._ledger.note(digest, _SURVIVORS, party.survivors_note(context, self._index, request.arrays))
        return party.agree(
            context,
            self._index,
            request.arrays,
            masked=masked,
            noted=noted,
            authenticator=self._authenticator,
        )

    def _open(self, request: StepRequest) -> tuple[ndarray, ...]:
        digest, context = request.batch_digest, self._context(request.batch_digest)
        noted = self._ledger.noted(digest, _SURVIVORS)
        if noted is None:
            raise Refused("other_survivors", "this party signed no set of survivors for the batch")
        return party.unmask(
            self._secret(digest),
            context,
            self._index,
            request.arrays,
            masked=self._masked(digest),
            noted=noted,
            authenticator=self._authenticator,
        )

    def _masked(self, digest: bytes) -> bytes:
        """The sharers that this party's stored reply is masked for: none before there is one."""
        noted = self._ledger.noted(digest, _MASKING)
        if noted is None or self._ledger.number_of(digest) is None:
            raise Refused("unknown_batch", "this party has not voted on the batch")
        return noted

    def _secret(self, digest: bytes) -> bytes:
        secret = self._ledger.noted(digest, _SECRET)
        if secret is None:
            raise Refused("unknown_batch", "the batch was settled, or its keys were never asked for")
        return secret

    def _context(self, digest: bytes) -> Context:
        noted = self._ledger.noted(digest, _CELLS)
        if noted is None:
            raise Refused("unknown_batch", "the batch was settled, or its keys were never asked for")
        queries = int.from_bytes(noted, "big")
        latest = self._latest  # five steps of a batch follow each other: the graph is shuffled once
        if latest is None or (latest.batch, latest.cells) != (digest, queries * self._study.classes):
            latest = self._latest = context_of(self._study, digest, queries=queries)
        return latest


class SecureSum(Aggregation):
    """The coordinator's side. It draws no noise: the parties' is in what it opens.

    Who shared and whose masked votes were taken is noted before the next step, so that a batch that was stopped goes on
    with the same parties.
    """

    def count(self, asked: Asked) -> Counted:
        study = asked.study
        context = context_of(study, asked.request.digest, queries=len(asked.request.batch.ids))
        verify = roster_verifier(study)
        left_out: dict[str, str] = {}
        try:
            shared = self._shared(asked, context, verify, left_out)
            masked = self._masked(asked, shared, left_out)
            agreed = collect_signatures(
                masked, self._step(asked, "sum_agree", masked.present, lambda _: masked.request, {}), verify=verify
            )
            opened = open_sum(agreed, self._step(asked, "sum_open", agreed.present, agreed.request, {}))
        except QuorumLost as error:
            return Counted(None, (), error.left_out | left_out)
        lattice = study.lattice
        assert lattice is not None
        noisy = opened.sums.reshape(-1, study.classes) / lattice.units
        silent = LatticeNoise(lattice.units, lambda count, sigma: np.zeros(count, dtype=np.int64))
        labels = study.release(noisy, silent, predictions=asked.predictions)
        voted = tuple(np.array(context.members, dtype=object)[masked.present].tolist())
        return Counted(labels, voted, opened.left_out | left_out)

    def released(self, asked: Asked) -> None:
        """Forgets what was kept in order to go on."""
        for kind in (_SHARED, _MASKED):
            asked.ledger.forget(asked.request.digest, kind)

    def _shared(self, asked: Asked, context: Context, verify: Verify, left_out: dict[str, str]) -> Shared:
        noted = asked.ledger.noted(asked.request.digest, _SHARED)
        if noted is None:
            everyone = np.ones(context.parties, dtype=bool)
            queries = np.array([len(asked.request.batch.ids)], dtype=np.int64)
            replies = self._step(asked, "sum_keys", everyone, lambda _: (queries,), left_out)
            advertised = collect_keys(context, replies, verify=verify)
            keys = advertised.keys
            shared = collect_shares(keys, self._step(asked, "sum_shares", keys.present, advertised.request, left_out))
            _add_missing(left_out, shared.left_out)
            arrays = (keys.present, keys.table, shared.present, shared.sealed, shared.receipts)
            noted = asked.ledger.note(asked.request.digest, _SHARED, encode_arrays(arrays))
        present, table, sharers, sealed, receipts = decode_arrays(noted)
        absent = {name: "absent" for name, there in zip(context.members, sharers.tolist(), strict=True) if not there}
        return Shared(Keys(context, present, table), sharers, sealed, receipts, absent)

    def _masked(self, asked: Asked, shared: Shared, left_out: dict[str, str]) -> Masked:
        noted = asked.ledger.noted(asked.request.digest, _MASKED)
        if noted is None:
            masked = collect_masked(shared, self._votes(asked, shared, left_out))
            _add_missing(left_out, masked.left_out)
            noted = asked.ledger.note(asked.request.digest, _MASKED, encode_arrays((masked.present, masked.total)))
        present, total = decode_arrays(noted)
        members = shared.keys.context.members
        absent = {name: "absent" for name, there in zip(members, present.tolist(), strict=True) if not there}
        return Masked(shared, present, total.copy(), absent)

    def _votes(self, asked: Asked, shared: Shared, left_out: dict[str, str]) -> Replies:
        request, seats = asked.request, asked.study.seats
        asking = {
            name: VoteRequest(request.study, request.run, request.batch, shared.request(seats[name]))
            for name in np.array(shared.keys.context.members, dtype=object)[shared.present].tolist()
        }
        found: dict[int, tuple[ndarray, ...] | None] = {}
        for name, reply in asked.exchange(asking).items():
            if isinstance(reply, Refusal):
                left_out[name] = code_of(reply)
            elif isinstance(reply, HiddenVotes) and reply.batch_digest == request.digest:
                found[seats[name]] = reply.arrays
        return found

    def _step(
        self,
        asked: Asked,
        step: str,
        present: ndarray,
        request: Callable[[int], tuple[ndarray, ...]],
        left_out: dict[str, str],
    ) -> Replies:
        """One step with every party that is present; the codes of refusals go into left_out."""
        study, digest = asked.study, asked.request.digest
        asking = {
            study.roster[index].party: StepRequest(study.digest, digest, step, request(index))
            for index in np.flatnonzero(present).tolist()
        }
        found: dict[int, tuple[ndarray, ...] | None] = {}
        for name, reply in asked.exchange(asking).items():
            if isinstance(reply, Refusal):
                left_out[name] = code_of(reply)
            elif isinstance(reply, StepReply) and (reply.batch_digest, reply.step) == (digest, step):
                found[study.seats[name]] = reply.arrays
        return found


def openers(ledger: Ledger, digest: bytes) -> list[int] | None:
    """Which seats of the roster can still open a batch, by index; None as long as it is not fixed who they are."""
    for kind, sharers in ((_MASKED, 0), (_SHARED, 2)):
        if (noted := ledger.noted(digest, kind)) is not None:
            return [int(at) for at in np.flatnonzero(decode_arrays(noted)[sharers])]
    return None


def _add_missing(left_out: dict[str, str], codes: Mapping[str, str]) -> None:
    """Adds the codes of parties that have none yet: a refusal says more than that no reply came."""
    for name, code in codes.items():
        left_out.setdefault(name, code)


def context_of(study: Study, digest: bytes, *, queries: int) -> Context:
    """What the sum of one batch is bound to: the whole roster, and the bounds on who leaves and who colludes."""
    colluders = study.confidentiality.colluders
    assert colluders is not None
    cells = queries * study.classes
    total_sigma = float(noise_share(study)) * len(study.roster) ** 0.5
    ring = check_ring(total_units=study.total_units, noise_sigma_units=total_sigma, cells=cells)
    return Context(
        study=study.digest,
        run=b"",
        batch=digest,
        members=tuple(seat.party for seat in study.roster),
        dropouts=len(study.roster) - study.quorum,
        colluders=colluders,
        cells=cells,
        bits=ring.bits,
    )


def noise_share(study: Study) -> Fraction:
    """sigma of each party's noise, in lattice units: the honest parties of a quorum add up to the study's."""
    colluders, lattice, sigma = study.confidentiality.colluders, study.lattice, study.sigma
    assert colluders is not None
    assert lattice is not None
    assert sigma is not None
    return share_sigma(
        sigma_units=sigma * lattice.units,
        parties=len(study.roster),
        dropouts=len(study.roster) - study.quorum,
        colluders=colluders,
    )


def roster_verifier(study: Study) -> Verify:
    """verify(seat, message, signature) under the keys of the study's roster."""
    return verifier(_roster_keys(study))


def _roster_keys(study: Study) -> Mapping[str, ec.EllipticCurvePublicKey]:
    return public_keys(tuple((seat.party, seat.signing_key) for seat in study.roster if seat.signing_key is not None))


def _queries(arrays: tuple[ndarray, ...]) -> tuple[int]:
    if len(arrays) != 1 or arrays[0].dtype != np.int64 or arrays[0].shape != (1,):
        raise MalformedMessage("the request for keys is malformed; allowed: the number of queries")
    return (int(arrays[0][0]),)
