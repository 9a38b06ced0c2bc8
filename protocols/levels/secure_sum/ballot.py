"""Level `secure_sum`, a party's side: its weighted votes and its share of the noise, under masks (secure_sum/).

A party's steps of one secure sum: pure functions of its one secret, the context and what it received.

Bonawitz et al. 2017, Figure 4, on the graph of crypto/masks.py. Step 3, in which shares are opened and checked
before anybody masks, is in checking.py. Besides its secret, a party must keep a note of its masked input and a note of
the survivors that it agreed on; the first of each stands (notes in its ledger). `masking_note` and `survivors_note` say
what to keep; the steps refuse to act on anything else. The masked input is sent once: the caller stores the reply, and
a retry gets the stored one, because the same masks over other values (noise drawn again) would reveal the difference.

An honest coordinator learns the sum over the survivors, and what up to `colluders` parties tell it. A dishonest one
learns one sum over at least `fewest` parties of its choice, or nothing: keys are signed or tagged, a quorum exists for
one set of survivors only, masks are bound to the set of sharers, a seed's shares are opened only for the sharers that
its owner said it masked with, and no honest party opens both secrets of another.
Another context is another sum of the same votes: it needs a fresh secret, fresh noise and its own charge. Nothing here
checks the vectors: a party can add any vector.

Differences from the paper: shares can be checked, and are, before the votes are masked (dealing.py); the statement of
survivors names the sharers too, and is tagged for each member, not signed; elsewhere pairwise tags are checked before
signatures, which decide where a tag fails (wire.py); what a party opened comes back with the party's receipt
of it, sealed to itself (checking.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Bool, Int64, UInt8
from numpy import ndarray

from protocols.crypto.discrete_gaussian import integer_gaussian
from protocols.crypto.edwards import encoded
from protocols.crypto.identity import sign
from protocols.crypto.masks import KEY_BYTES, MaskSum, agreed, same
from protocols.crypto.prg import expanded_source
from protocols.crypto.randomness import RandomSource
from protocols.crypto.rings import to_ring
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.level import Ballot, Casting
from protocols.levels.secure_sum import checking
from protocols.levels.secure_sum.checking import RECEIPT, VerifiedKeys, kept_shares, verified
from protocols.levels.secure_sum.dealing import Secrets, dealing_of, pair_mask_key, sealing_keys, self_mask_key
from protocols.levels.secure_sum.terms import Context, context_of, noise_share, roster_keys
from protocols.levels.secure_sum.wire import (
    KEYS,
    MASK_KEY,
    MASK_ROW,
    MASK_TAG_BYTES,
    PADDED_SIGNATURE_BYTES,
    SEALING_ROW,
    SEED,
    Authenticator,
    PairwiseAuthenticator,
    checked,
    commitment,
    flags,
    kept_bytes,
    keys_statement,
    masked_statement,
    octets,
    receipt_bytes,
    rows_of,
    sized,
    survivors_statement,
    table_of,
    unpadded,
)
from protocols.ranges import integer
from protocols.refusals.code import Code
from protocols.study.levels import summed
from protocols.study.study import Study
from protocols.wire.messages import Arrays, ConcealedVotes, Outcome, StepReply, StepRequest, VoteReply, VoteRequest

_SECRET_BYTES = 32
# The number of newest batches to keep whose keys were asked for but which were never charged.
_OPEN_SUMS = 8
_SECRET, _MASKING, _SURVIVORS, _CELLS = "sum_secret", "sum_masking", "sum_survivors", "sum_cells"
# All that a party keeps of a batch: as long as it has the secret, its masks are fixed.
_NOTES = (_SECRET, _MASKING, _SURVIVORS, _CELLS)


class SummedBallot(Ballot):
    """One seat's side. key: the private half of what the study names for the seat; source: the operating system's on a
    node.

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
        """noise_source: of the noise, for simulations, which draw noise and coins again; None: the batch's secret."""
        self._study = study
        self._index = study.seats[seat]
        self._ledger = ledger
        self._source = source
        self._noise_source = noise_source
        self._units = summed(study.confidentiality).units
        self._noise_sigma = noise_share(study)
        self._latest: Context | None = None
        self._authenticator = PairwiseAuthenticator(study.digest, seat, key=key, publics=roster_keys(study))
        if not self._authenticator.verify(seat, b"", sign(key, b"")):
            raise InvalidInput(f"the key of {seat!r} is not the one that study {study.name!r} names for it")

    def step(self, request: StepRequest) -> StepReply:
        steps = {
            "sum_keys": self._advertise,
            "sum_shares": lambda asked: self._exchange(share, asked),
            "sum_check": lambda asked: self._exchange(checking.check_shares, asked),
            "sum_dispute": lambda asked: self._exchange(checking.accuse, asked),
            "sum_agree": self._agree,
            "sum_open": self._open,
        }
        if request.step not in steps:
            raise Refused(Code.NO_SUCH_STEP, f"step {request.step!r}; allowed: {', '.join(steps)}")
        return StepReply(request.batch_digest, request.step, steps[request.step](request))

    def cast(self, request: VoteRequest, votes: Casting) -> ConcealedVotes:
        study, digest = self._study, request.digest
        queries = len(request.batch.ids).to_bytes(8, "big")
        if self._ledger.note(digest, _CELLS, queries) != queries:
            raise Refused(Code.OTHER_SHAPE, "the batch has another number of queries than its keys were asked for")
        context, secret = self._context(digest), self._secret(digest)
        note = self._ledger.note(digest, _MASKING, masking_note(context, self._index, request.relayed))
        # Of the batch's secret, as the masks are: a ledger that was restored to before its last charge masks the same
        # votes and the same noise again, where other ones would show what they differ by.
        coins, source = None, self._noise_source
        if source is None:
            coins, source = (expanded_source(secret, label=label) for label in ("secret coins", "noise share"))
        tally = study.votes.tally(study, votes(coins)[None], np.array([self._index]))
        values = tally.ravel() + integer_gaussian(source, sigma=self._noise_sigma, size=tally.size)
        by = self._authenticator
        return ConcealedVotes(
            digest, mask(secret, context, self._index, request.relayed, values, noted=note, authenticator=by)
        )

    def settle(self, outcome: Outcome, sent: VoteReply | ConcealedVotes) -> str:
        """Forgets the secrets. The histogram is charged whatever was answered, so the outcome lowers nothing."""
        for kind in _NOTES:
            self._ledger.forget(outcome.batch_digest, kind)
        return ""

    def _advertise(self, request: StepRequest) -> Arrays:
        queries = _queries(request.arrays)
        if queries > self._study.batch_limit:
            raise Refused(
                Code.BATCH_TOO_LARGE, f"{queries} queries; allowed: 1 to {self._study.batch_limit} in a batch"
            )
        if self._ledger.number_of(request.batch_digest) is None:
            self._ledger.note(request.batch_digest, _SECRET, self._source(_SECRET_BYTES))
            self._ledger.note(request.batch_digest, _CELLS, queries.to_bytes(8, "big"))
            self._ledger.forget_uncharged(*_NOTES, keep=_OPEN_SUMS)
        context = self._context(request.batch_digest)
        secret = self._secret(request.batch_digest)
        return advertise(secret, context, self._index, authenticator=self._authenticator)

    def _exchange(self, step: Callable[..., Arrays], request: StepRequest) -> Arrays:
        """A step before anything is masked: of the secret and of what arrived alone."""
        context, secret = self._context(request.batch_digest), self._secret(request.batch_digest)
        return step(secret, context, self._index, request.arrays, authenticator=self._authenticator)

    def _agree(self, request: StepRequest) -> Arrays:
        digest, context = request.batch_digest, self._context(request.batch_digest)
        masked = self._masked(digest)
        if self._ledger.noted(digest, _SURVIVORS) is None:
            # Logged, so that an older copy of the ledger is recognised and opens no other sum.
            self._ledger.log.append("agreed", request=digest.hex())
        noted = self._ledger.note(digest, _SURVIVORS, survivors_note(context, self._index, request.arrays))
        return agree(
            context, self._index, request.arrays, masked=masked, noted=noted, authenticator=self._authenticator
        )

    def _open(self, request: StepRequest) -> Arrays:
        digest, context = request.batch_digest, self._context(request.batch_digest)
        noted = self._ledger.noted(digest, _SURVIVORS)
        if noted is None:
            raise Refused(Code.OTHER_SURVIVORS, "this party agreed on no set of survivors for the batch")
        return unmask(
            self._secret(digest),
            context,
            self._index,
            request.arrays,
            masked=self._masked(digest),
            noted=noted,
            authenticator=self._authenticator,
        )

    def _masked(self, digest: bytes) -> bytes:
        """The sharers for which this party's stored reply is masked; none before there is a reply."""
        noted = self._ledger.noted(digest, _MASKING)
        if noted is None or self._ledger.number_of(digest) is None:
            raise Refused(Code.UNKNOWN_BATCH, "this party has not voted on the batch")
        return noted

    def _secret(self, digest: bytes) -> bytes:
        secret = self._ledger.noted(digest, _SECRET)
        if secret is None:
            raise Refused(Code.UNKNOWN_BATCH, "the batch was settled, or its keys were never asked for")
        return secret

    def _context(self, digest: bytes) -> Context:
        noted = self._ledger.noted(digest, _CELLS)
        if noted is None:
            raise Refused(Code.UNKNOWN_BATCH, "the batch was settled, or its keys were never asked for")
        queries = int.from_bytes(noted, "big")
        latest = self._latest  # the steps of a batch share one shuffled graph
        if latest is None or (latest.batch, latest.cells) != (digest, queries * self._study.classes):
            latest = self._latest = context_of(self._study, digest, queries=queries)
        return latest


def _queries(arrays: Arrays) -> int:
    if len(arrays) != 1:
        raise MalformedMessage("the request for keys is malformed; allowed: the number of queries")
    return integer("StepRequest sum_keys", "queries", arrays[0])


def advertise(batch_secret: bytes, context: Context, index: int, *, authenticator: Authenticator) -> Arrays:
    """Step 1: this party's keys, its signature of them, and a tag of them for each neighbour."""
    keys, statement = _own_keys(Secrets(batch_secret, context, index), context, index)
    names = context.members
    tags = [authenticator.tag(names[other], statement) for other in context.graph.neighbours(index).tolist()]
    return keys, sized(authenticator.sign(statement)), table_of(tags)


def share(
    batch_secret: bytes, context: Context, index: int, request: Arrays, *, authenticator: Authenticator
) -> Arrays:
    """Step 2: shares of both secrets, sealed to each neighbour that advertised keys, and what they are checked by; this
    party's signature of that, and a tag of it for each neighbour; a receipt of the neighbours' keys.

    Raises MalformedMessage, naming the party, for keys that their owner did not sign; Refused("too_few_parties").
    """
    secrets, graph = Secrets(batch_secret, context, index), context.graph
    here, keys, signatures, tags = checked(
        request,
        ("present", "|u1", (graph.degree,)),
        ("keys", "|u1", (graph.degree, *KEYS)),
        ("signatures", "|u1", (graph.degree, PADDED_SIGNATURE_BYTES)),
        ("tags", "|u1", (graph.degree, MASK_TAG_BYTES)),
    )
    present = flags(here, "present")
    _enough(int(present.sum()), context.threshold, "neighbours with keys")
    neighbours, rows, tagged = graph.neighbours(index).tolist(), np.flatnonzero(present).tolist(), rows_of(tags)
    for row in rows:
        name, statement = context.members[neighbours[row]], keys_statement(context.digest, neighbours[row], keys[row])
        if not _authentic(authenticator, name, statement, tagged[row], signatures[row]):
            raise MalformedMessage(f"keys of {name!r}: neither tag nor signature is that member's")
    publics, own_key = rows_of(keys[:, SEALING_ROW]), secrets.sealing_key()
    sealing: dict[int, tuple[bytes, bytes]] = {}
    opening = [bytes(KEY_BYTES)] * graph.degree
    for row in rows:
        secret = agreed(own_key, publics[row])
        seals, opening[row] = sealing_keys(secret, context, own=index, their=neighbours[row])
        sealing[row] = publics[row], seals
    about = verified(present, keys)
    own, _ = _own_keys(secrets, context, index)
    dealing = dealing_of(secrets, context, index, keys=own.tobytes(), sealing=sealing, about=about)
    statement, names = dealing.statement(context, index, own.tobytes()), context.members
    return (
        octets(dealing.blinding),
        dealing.sealed,
        dealing.commitments,
        dealing.answers,
        sized(authenticator.sign(statement)),
        table_of([authenticator.tag(names[other], statement) for other in neighbours]),
        octets(secrets.keep(RECEIPT, b"".join(opening), about)),
    )


def _own_keys(secrets: Secrets, context: Context, index: int) -> tuple[UInt8[ndarray, "3 32"], bytes]:
    """This party's public keys and its commitment, and what it signs about them."""
    publics = [key.public_key().public_bytes_raw() for key in (secrets.sealing_key(), secrets.mask_key())]
    keys = table_of([*publics, commitment(context.digest, index, encoded(secrets.seed()))])
    return keys, keys_statement(context.digest, index, keys)


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
    authenticator: Authenticator,
) -> Arrays:
    """Step 4: the values, votes and noise share, under the self mask and the masks of all neighbours that shared; this
    party's signature of who they are, and a tag of it for each neighbour.

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
    own_public, publics = own_key.public_key().public_bytes_raw(), rows_of(masking.keys.table[:, MASK_ROW])
    sharing = np.flatnonzero(masking.sharers[neighbours]).tolist()
    secrets_of = {row: agreed(own_key, publics[row]) for row in sharing}
    for row in sharing:
        other, public = int(neighbours[row]), publics[row]
        key = pair_mask_key(secrets_of[row], about, (index, other), (own_public, public))
        masked.add(key, sign=1 if index < other else -1)
    masked.add(self_mask_key(secrets.seed(), context, index), sign=1)
    statement = masked_statement(context.digest, index, about)
    return (
        masked.total + to_ring(values, bits=context.bits),
        sized(authenticator.sign(statement)),
        table_of([authenticator.tag(context.members[other], statement) for other in neighbours.tolist()]),
    )


def survivors_note(context: Context, index: int, request: Arrays) -> bytes:
    """What to keep before `agree`: the survivors that this party agrees on. The first one stands."""
    return _statement_digest(context, *_sets(context, index, request))


def agree(
    context: Context, index: int, request: Arrays, *, masked: bytes, noted: bytes, authenticator: Authenticator
) -> Arrays:
    """Step 5: a tag for each other survivor, of who is left.

    Tags are enough: of n members at least n - dropouts agree, which are a quorum, whatever the others send; and nobody
    but a receiver needs to know.

    masked, noted: the masking_note and the survivors_note that were kept. Raises Refused("other_sharers"),
    Refused("other_survivors"), Refused("too_few_parties"), Refused("not_a_survivor") and MalformedMessage.
    """
    sharers, survivors = _sets(context, index, request)
    _check_notes(context, sharers, survivors, masked, noted)
    statement = survivors_statement(context.digest, sharers, survivors)
    tags = [bytes(MASK_TAG_BYTES)] * context.parties
    for other in np.flatnonzero(survivors).tolist():
        if other != index:
            tags[other] = authenticator.tag(context.members[other], statement)
    return (table_of(tags),)


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
    """Step 6: this party's seed, and of each neighbour the share of its seed if it is left, of its mask key if not.

    Zeros for neighbours that did not share. The share of a seed is given only if its owner masked for these sharers: a
    neighbour that was told of others has masks with these alone, which the mask keys of drop-outs may all open.

    masked, noted: the masking_note and the survivors_note that were kept. Raises as `agree`;
    Refused("too_few_parties") if no quorum has tagged these survivors; and MalformedMessage, naming the party, where
    neither tag nor signature of whom it masked with is its own.
    """
    secrets, graph = Secrets(batch_secret, context, index), context.graph
    (marked,) = checked(request[5:6], ("agreed", "|u1", (context.parties,)))
    others = np.flatnonzero(flags(marked, "agreed")).tolist()
    here, there, kept, masked_signatures, masked_tags, _, tags = checked(
        request,
        ("sharers", "|u1", (context.parties,)),
        ("survivors", "|u1", (context.parties,)),
        ("kept", "|u1", (kept_bytes(graph.degree),)),
        ("masked signatures", "|u1", (graph.degree, PADDED_SIGNATURE_BYTES)),
        ("masked tags", "|u1", (graph.degree, MASK_TAG_BYTES)),
        ("agreed", "|u1", (context.parties,)),
        ("tags", "|u1", (len(others), MASK_TAG_BYTES)),
    )
    sharers, survivors = _sets(context, index, (here, there))
    _check_notes(context, sharers, survivors, masked, noted)
    statement = survivors_statement(context.digest, sharers, survivors)
    agreed_on = 1  # by this party itself: what it tagged is in its note, and was compared
    for other, tag in zip(others, rows_of(tags), strict=True):
        if agreed_on < context.quorum:
            # A tag of this party's own never holds.
            agreed_on += authenticator.holds(context.members[other], statement, tag)
    _enough(agreed_on, context.quorum, "members that agreed on the survivors")
    shares, neighbours = kept_shares(secrets, kept.tobytes()), graph.neighbours(index)
    for row in np.flatnonzero(survivors[neighbours]).tolist():
        name, tag = context.members[neighbours[row]], masked_tags[row].tobytes()
        statement = masked_statement(context.digest, int(neighbours[row]), masked)
        if not _authentic(authenticator, name, statement, tag, masked_signatures[row]):
            raise MalformedMessage(f"masked: neither tag nor signature of {name!r} is that member's, for these sharers")
    kinds = np.where(survivors[neighbours], SEED, MASK_KEY)
    opened = np.where(sharers[neighbours, None], shares[np.arange(graph.degree), kinds], np.uint8(0))
    return octets(encoded(secrets.seed())), opened


@dataclass(frozen=True, eq=False)
class _Masking:
    """A request of step 4."""

    sharers: Bool[ndarray, " parties"]
    keys: VerifiedKeys

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
        keys = VerifiedKeys.read(context, index, present, table, receipt)
        keys.check_has(sharers[keys.neighbours], "that shared", context)
        _enough(int(sharers[keys.neighbours].sum()), context.threshold, "neighbours that shared")
        return cls(sharers, keys)


def _sets(context: Context, index: int, request: Arrays) -> tuple[Bool[ndarray, " parties"], Bool[ndarray, " parties"]]:
    """Sharers and survivors of a request of step 5, if a party may agree on them."""
    there, left = checked(request, ("sharers", "|u1", (context.parties,)), ("survivors", "|u1", (context.parties,)))
    sharers, survivors = flags(there, "sharers"), flags(left, "survivors")
    if (others := np.flatnonzero(survivors & ~sharers)).size:
        raise MalformedMessage(f"survivors: {context.members[others[0]]!r} did not share; allowed: sharers only")
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
        raise Refused(Code.OTHER_SURVIVORS, "this party agreed on another set of survivors")


def _authentic(
    authenticator: Authenticator, member: str, statement: bytes, tag: bytes, signature: UInt8[ndarray, " 73"]
) -> bool:
    """Whether a statement is the member's. The tag is cheap to check; the signature decides if it fails."""
    return authenticator.holds(member, statement, tag) or authenticator.verify(member, statement, unpadded(signature))


def _statement_digest(
    context: Context, sharers: Bool[ndarray, " parties"], survivors: Bool[ndarray, " parties"]
) -> bytes:
    return hashlib.sha256(survivors_statement(context.digest, sharers, survivors)).digest()


def _enough(count: int, needed: int, what: str) -> None:
    if count < needed:
        raise Refused(Code.TOO_FEW_PARTIES, f"{count} {what}; allowed: at least {needed}")
