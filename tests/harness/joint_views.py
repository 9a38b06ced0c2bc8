"""Whole batches of level `two_server` in one process, and everything that each server saw of one, as rows of bits.

A batch is asked twice: the line breaks once when both servers have evaluated the circuits and the guardian has not
heard that the coordinator has. So a view has two of everything that is drawn afresh, over one set of shares and under
one coin.

Both servers' noise is zero. That is the harder case: nothing but shares and labels hides the votes then, and the
outputs are the same in every run.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.crypto.field import BITS, P, minus, plus, times
from protocols.crypto.garbling import Evaluator, TableReader, colours
from protocols.crypto.oblivious_transfer import COLUMNS, CorrelatedReceiver, CorrelatedSender
from protocols.labelling import guardian as guardian_module
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server import noise_pool
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.levels.two_server.conversation import ballots_of
from protocols.levels.two_server.one_time_masks import INPUT_REPETITIONS
from protocols.levels.two_server.shares import (
    REPETITIONS,
    coordinator_blinds,
    guardian_blinds,
    guardian_determined,
    guardian_votes,
)
from protocols.levels.two_server.sketch import _challenge
from protocols.wire.messages import ConcealedVotes
from tests.harness.kept_messages import Kept, Unready
from tests.harness.levels import SEALING_KEY, SEAT_KEYS, GuardianHere, two_server
from tests.harness.seeded import seeded_source
from tests.harness.studies import make_study

PARTIES, CLASSES, KINDS, COPIES = 4, 3, 3, 96
QUERIES = KINDS * COPIES
ABOUT = {"classes": CLASSES, "queries": QUERIES, "sigma": 40.0, "threshold": 2.5, "quorum": PARTIES}
STUDY = make_study([9.0] * PARTIES, confidentiality=two_server(), **ABOUT)
POOL = np.zeros((QUERIES, 2), np.float32)
_SHOWN_COLUMNS, _PAIRS = 6, 300
# Where a server's messages have the masked results of votes, of the check of inputs, and the first matrix.
_MASKED, _MATRIX = 14, 19


@dataclass
class Run:
    """What happened in one batch; each list has an entry an attempt, or several."""

    replies: dict = field(default_factory=dict)
    to_coordinator: list = field(default_factory=list)
    to_guardian: list = field(default_factory=list)
    gates: list = field(default_factory=list)
    chosen: list = field(default_factory=list)
    zeros: list = field(default_factory=list)
    coins: list = field(default_factory=list)
    labels: np.ndarray | None = None
    digest: bytes = b""


def batch(votes, seed, *, party_seed=lambda seat: seat, between=lambda own, guardians: None):
    """One batch of votes [parties, kinds], the same in every copy. between: what happens to the ledgers in between."""
    run, own, guardians = Run(), Ledger(":memory:"), Ledger(":memory:")
    ledgers = [Ledger(":memory:") for _ in STUDY.roster]
    tiled = np.tile(votes, (1, COPIES))
    parties = {
        seat.party: Party(
            seat.party,
            study=STUDY,
            ledger=ledgers[at],
            voter=lambda batch, at=at: tiled[at : at + 1, batch.ids],
            coins_from=None,
            ballot=SharedBallot(STUDY, seat.party, key=SEAT_KEYS[at], source=seeded_source(seed, 9, party_seed(at))),
        )
        for at, seat in enumerate(STUDY.roster)
    }

    def handle(name, request):
        reply = parties[name].handle(request)
        if isinstance(reply, ConcealedVotes):
            run.replies[name] = reply.arrays[:-1]
        return reply

    exchange = InProcessTransport({name: lambda request, name=name: handle(name, request) for name in parties})
    with _watched(run):
        for attempt in range(2):
            run.to_coordinator.append([])
            run.to_guardian.append([])
            here = GuardianHere(
                STUDY,
                guardians,
                seeded_source(seed, attempt, 1),
                wrap=lambda end, attempt=attempt: (Kept, Unready)[1 - attempt](end, 0, run.to_guardian[-1]),
            )

            @contextmanager
            def dial(here=here):
                with here.dial() as end:
                    yield Kept(end, 0, run.to_coordinator[-1])

            coordinator = Coordinator(
                STUDY,
                ledger=own,
                aggregation=SharedAggregation(dial, source=seeded_source(seed, attempt)),
                exchange=exchange,
                run=b"run",
            )
            labelling = coordinator.label(POOL)
            run.digest = own.stored(0).digest
            run.coins.append(own.noted(run.digest, "check coin"))
            if attempt == 0:
                assert labelling.stop.reason == "guardian_lost", labelling
                between(own, guardians)
    assert labelling.stop.reason == "pool_exhausted"
    assert not labelling.refusals
    run.labels = labelling.labels
    for ledger in (own, guardians, *ledgers):
        ledger.close()
    return run


@contextmanager
def _watched(run):
    """Keeps what the servers work out of what they get, where it is not in a message; noise is zero."""
    real = Evaluator.conjunction, TableReader.read, CorrelatedReceiver.extend, CorrelatedSender.checked
    drawing = noise_pool.inverted

    def conjunction(self, left, right):
        result = real[0](self, left, right)
        shape = result.shape[:-1]
        seen = [np.broadcast_to(colours(wires), shape) for wires in (left, right, result)]
        run.gates.append(np.stack([*seen, *colours(run.table), *colours(run.table >> np.uint64(1))]))
        return result

    def read(self, gates):
        run.table = real[1](self, gates)
        return run.table

    def receiver(self, bits):
        active, message = real[2](self, bits)
        run.chosen.append((bits, active))
        return active, message

    def sender(self, challenge, answer):
        run.zeros.append(real[3](self, challenge, answer))
        return run.zeros[-1]

    def silent(words, *, sigma):
        return np.zeros(words.shape[:-1], dtype=np.int64)

    Evaluator.conjunction, TableReader.read = conjunction, read
    CorrelatedReceiver.extend, CorrelatedSender.checked = receiver, sender
    noise_pool.inverted = silent
    try:
        yield
    finally:
        Evaluator.conjunction, TableReader.read, CorrelatedReceiver.extend, CorrelatedSender.checked = real
        noise_pool.inverted = drawing


# What a server may work out. Elements have the axes [copies, places]; bits too.


def views(run):
    """((bits a copy, bits an octet) of the coordinator, the same of the guardian)."""
    of_coordinator, of_guardian = _shares(run)
    openings = [_openings(run, attempt) for attempt in range(2)]
    # The coins are known to both servers, and so is Z, from what one has and what the other sent.
    both = [*openings, *(_masked_results(run, attempt) for attempt in range(2))]
    public = [*(part for each in both for part in each), *(plus(*each) for each in both), _tried(run, openings)]
    sides = []
    for at, held in enumerate((of_coordinator, of_guardian)):
        elements = _combined(np.concatenate([*held, *public], axis=3))
        sides.append(np.concatenate([_bits(elements), *_of_the_circuits(run, at, held[0])], axis=1))
    seals = [np.concatenate([reply[0], reply[6][0]]) for reply in _ordered(run)]
    return (sides[0], _octets(run, seals)), (sides[1], _octets(run, _seeds(run)))


def _of_the_circuits(run, at, votes):
    """What a server (0: the coordinator) has of both attempts' circuits; votes: its shares."""
    quarter = len(run.gates) // 4  # an attempt has a circuit that the coordinator evaluates, then the guardian's
    own = [each for part in (at, 2 + at) for each in run.gates[part * quarter : (part + 1) * quarter]]
    gates = np.concatenate([_copies(each) for each in own], axis=1)
    pairs = gates.reshape(COPIES, -1, 7)  # the colours that an evaluator sees, under tables' that would unmask them
    crossed = [pairs[:, :, wire] ^ pairs[:, :, table] for wire in range(3) for table in (3, 4)]
    own_bits = [_copies(bits.reshape(-1, QUERIES)[None]) for bits, _ in run.chosen[at::2]]
    active = [_copies(colours(labels).reshape(-1, QUERIES)[None]) for _, labels in run.chosen[at::2]]
    messages = (run.to_coordinator, run.to_guardian)[at]
    matrices = [_matrix(each[_MATRIX - at]) for each in messages]
    zeros = [_copies(_low(labels).reshape(8, -1, QUERIES)) for labels in run.zeros[1 - at :: 2]]
    numbers = [_numbers(matrix, votes) for matrix in matrices]
    shown = [_copies(matrix.reshape(_SHOWN_COLUMNS, -1, QUERIES)) for matrix in matrices]
    evaluated = [
        gates,
        *crossed,
        *own_bits,
        *active,
        own_bits[0] ^ active[0],
        _masks(messages[1][-3 if at == 0 else -2]),
    ]
    return [*evaluated, *map(_bits, numbers), *shown, shown[0] ^ shown[1], *zeros, zeros[0] ^ zeros[1]]


def _shares(run):
    """What each holds: shares of v, of k v, of B, of a and of A; [copies, kinds, parties, places] each."""
    ordered = _ordered(run)
    sizes = {"queries": QUERIES, "context": run.digest}
    votes, keyed, constants, seeds = (np.concatenate([reply[at] for reply in ordered]) for at in (1, 2, 3, 6))
    guardians = np.concatenate(_seeds(run))
    masks = guardian_votes(guardians, classes=CLASSES, **sizes)
    other = guardian_determined(guardians, classes=CLASSES, **sizes)
    # What the coordinator would have if the seal were none: the last bytes before the tag are those of the seed.
    plain = np.stack([reply[0][-32:-16] for reply in ordered])
    unsealed = plus(votes, guardian_votes(plain, classes=CLASSES, **sizes))
    held = [
        [first, *(_by_query(each) for each in (*determined, blinds.points, blinds.slopes))]
        for first, determined, blinds in (
            (votes, (keyed, constants), coordinator_blinds(seeds, **sizes)),
            (masks, (other.keyed, other.constants), guardian_blinds(guardians, **sizes)),
        )
    ]
    held[0].append(unsealed)
    return tuple([_of_copies(each) for each in server] for server in held)


def _by_query(values):
    """[voters, repetitions, queries, ...] with the queries second."""
    return np.ascontiguousarray(np.moveaxis(values, 2, 1)).reshape(PARTIES, QUERIES, -1)


def _ordered(run):
    return [run.replies[seat.party] for seat in STUDY.roster]


def _seeds(run):
    """What the guardian opens the seals to, in order of the roster."""
    about = {"key": SEALING_KEY, "study": STUDY.digest, "request": run.digest}
    names = [seat.party for seat in STUDY.roster]
    sealed = [reply[0].tobytes() for reply in _ordered(run)]
    return [guardian_module.unseal(each, seat=name, **about)[0] for each, name in zip(sealed, names, strict=True)]


def _openings(run, attempt):
    """(the coordinator's part of Z, the guardian's)."""
    return _parts((run.to_guardian[attempt][3], run.to_coordinator[attempt][2]), REPETITIONS)


def _masked_results(run, attempt):
    """(the coordinator's part of U, the guardian's)."""
    return _parts((run.to_guardian[attempt][_MASKED], run.to_coordinator[attempt][_MASKED]), INPUT_REPETITIONS)


def _parts(sent, repetitions):
    shape = (PARTIES, repetitions, QUERIES)
    parts = [np.frombuffer(data, "<u4", count=int(np.prod(shape))).reshape(shape) for data in sent]
    return [_of_copies(_by_query(each)) for each in parts]


def _tried(run, openings):
    """For every class what Z says if it was the vote, and what two openings say of it together."""
    takes_part = np.ones((PARTIES, QUERIES), dtype=bool)
    ballots = ballots_of(STUDY, run.digest, takes_part)
    opened = [plus(*each) for each in openings]
    powers = [_challenge(coin, ballots).points for coin in run.coins]
    # [copies, kinds, 1, repetitions] of each class.
    first, second = ([each[:, at].reshape(COPIES, KINDS, 1, -1) for at in range(CLASSES)] for each in powers)
    singly = [minus(opened[0], r) for r in first]
    jointly = [minus(minus(opened[1], opened[0]), minus(later, r)) for r, later in zip(first, second, strict=True)]
    return np.concatenate([*singly, *(times(each, each) for each in singly), *jointly], axis=3)


def _of_copies(values):
    """[voters, queries, places] as [copies, kinds, voters, places]."""
    return values.reshape(PARTIES, COPIES, KINDS, -1).transpose(1, 2, 0, 3)


def _combined(held):
    """The elements, their differences from voter to voter, and sums and differences of some at random."""
    flat = held.reshape(COPIES, -1)
    between = [minus(held[:, :, one], held[:, :, other]) for one, other in combinations(range(PARTIES), 2)]
    left, right = np.random.default_rng(0).integers(0, flat.shape[1], (2, _PAIRS))
    random = [plus(flat[:, left], flat[:, right]), minus(flat[:, left], flat[:, right])]
    everyone = held[:, :, 0]
    for voter in range(1, PARTIES):
        everyone = plus(everyone, held[:, :, voter])
    parts = [flat, *(each.reshape(COPIES, -1) for each in between), everyone.reshape(COPIES, -1), *random]
    return np.concatenate(parts, axis=1)


def _bits(elements):
    """All bits of each element, and whether it is zero."""
    shifted = (elements[:, :, None] >> np.arange(BITS, dtype=np.uint32)) & np.uint32(1)
    return np.concatenate([shifted.reshape(COPIES, -1).astype(bool), elements == 0], axis=1)


def _copies(bits):
    """[first, *places, queries] as [copies, places], the first axis last."""
    moved = np.moveaxis(bits, 0, -1).reshape(-1, COPIES, KINDS, len(bits))
    return moved.transpose(1, 2, 0, 3).reshape(COPIES, -1)


def _masks(message):
    """The masks of the outputs: 2 bits of the label and the pass bit of each query."""
    data = np.frombuffer(message, np.uint8)
    return _copies(np.unpackbits(data, count=3 * QUERIES).astype(bool).reshape(1, 3, QUERIES))


def _matrix(message):
    """Some columns of an extension matrix: [columns, 31, rows, queries]; a challenge may stand before it."""
    count = BITS * CLASSES * QUERIES
    size = CorrelatedSender.message_bytes(count)
    packed = np.frombuffer(message, np.uint8)[-size:].reshape(COLUMNS, -1)[:_SHOWN_COLUMNS]
    bits = np.unpackbits(packed, axis=1, bitorder="little", count=count)
    return bits.reshape(_SHOWN_COLUMNS, BITS, CLASSES, QUERIES).astype(bool)


def _numbers(matrix, masks):
    """What each column would be if it were the other's numbers in clear, with the server's own."""
    numbers = (matrix.astype(np.uint32) << np.arange(BITS, dtype=np.uint32)[:, None, None]).sum(axis=1, dtype="u4")
    own = masks[:, :, 0]
    for voter in range(1, PARTIES):
        own = plus(own, masks[:, :, voter])
    counts = (numbers % np.uint32(P)).reshape(_SHOWN_COLUMNS, CLASSES, COPIES, KINDS)
    weight = np.array([2 * STUDY.lattice.units], dtype=np.uint32)  # each vote counts one, doubled for the argmax
    return plus(counts.transpose(0, 2, 3, 1), times(own, weight)).transpose(1, 0, 2, 3).reshape(COPIES, -1)


def _low(labels):
    """The lowest 8 bits of labels, on a first axis."""
    return ((labels[..., 0] >> np.arange(8, dtype=np.uint64)[:, None]) & np.uint64(1)).astype(bool)


def _octets(run, held):
    """What is of a whole batch: seals or seeds, and what the check gave of each voter; [octets, bits]."""
    size = 2 * REPETITIONS * PARTIES
    # Of l and R as they were masked: the tests that follow are determined, and add up to zero.
    sent = [np.frombuffer(data, "<u4", count=size) for data in (run.to_guardian[0][4], run.to_coordinator[0][3])]
    octets = [np.ascontiguousarray(each).view(np.uint8).reshape(-1) for each in (*held, *sent, plus(*sent))]
    return np.unpackbits(np.concatenate(octets)[:, None], axis=1).astype(bool)
