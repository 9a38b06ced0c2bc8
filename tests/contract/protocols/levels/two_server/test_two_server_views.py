"""Each server's view is distributed the same for votes that give the same declared outputs.

A view is what a server holds and receives, and what follows from both: as bits of one sample a voter (of the check) or
a query (of the argmax), for two adversarial sets of votes. The test compares the frequencies of all bits and of random
parities of them. By Hoeffding's inequality two means of n bits each differ by more than sqrt(ln(2 k / rate) / n) in any
of k places with probability at most `rate`, here 1e-6 a comparison, whatever the common law. Seeds are fixed.

Each comparison is also made of a protocol broken on purpose, which it must tell.
"""

import numpy as np
import pytest

from protocols.crypto import oblivious_transfer
from protocols.crypto.channel import pair
from protocols.crypto.edwards import POINT_BYTES
from protocols.crypto.field import BITS, P, minus, plus
from protocols.crypto.garbling import Evaluator, LabelHash, colours, conjunctions_a_query
from protocols.crypto.oblivious_transfer import CHALLENGE_BYTES, COLUMNS, BaseReceiver, BaseSender
from protocols.crypto.prg import derived_key
from protocols.levels.two_server import shares
from protocols.levels.two_server.one_time_masks import guardian_masks
from protocols.levels.two_server.shares import (
    REPETITIONS,
    coordinator_blinds,
    guardian_blinds,
    guardian_determined,
    guardian_votes,
    share_votes,
)
from protocols.levels.two_server.sketch import Ballots, coordinator_checks, guardian_checks
from tests.harness.seeded import seeded_source
from tests.harness.two_server_sides import converse, coordinator_side, guardian_side, split

RATE = 1e-6
PARITIES = 5000


def tells_apart(first, second):
    """Whether two samples of bits, one a row, differ more than chance allows."""
    assert first.shape == second.shape
    places = first.shape[1]
    left, right = np.random.default_rng(0).integers(0, places, (2, PARITIES))
    furthest = 0.0
    for pair_of in ((first, second), tuple(sample[:, left] ^ sample[:, right] for sample in (first, second))):
        one, other = (np.count_nonzero(sample, axis=0) / len(sample) for sample in pair_of)
        furthest = max(furthest, float(np.abs(one - other).max()))
    return furthest > np.sqrt(np.log(2 * (places + PARITIES) / RATE) / len(first))


def bits(*arrays):
    """A row of bits a sample; the sample is each array's first axis."""
    rows = [np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1) for array in arrays]
    return np.unpackbits(np.concatenate(rows, axis=1), axis=1).astype(bool)


class Recorded:
    """An end of a channel that keeps what it received."""

    def __init__(self, end):
        self.end, self.received = end, []
        self.send, self.close = end.send, end.close

    def recv(self, limit):
        self.received.append(self.end.recv(limit))
        return self.received[-1]


def recorded():
    return [Recorded(end) for end in pair(wait_s=300.0)]


# The check of votes. All voters vote alike, so that each is one sample.

VOTERS, QUERIES, CLASSES = 400, 2, 3


def views_of_the_check(choices, seed):
    """(the coordinator's view, the guardian's), a row per voter."""
    votes = np.tile(np.array(choices), (VOTERS, 1))
    coordinator, guardian = share_votes(votes, classes=CLASSES, context=b"view", source=seeded_source(seed))
    ends = recorded()
    valid = checked(coordinator, guardian, votes.shape, seed, ends)
    assert valid.all()
    sizes = {"queries": QUERIES, "context": b"view"}
    # What was sent of Z, of the masked factors and results, and of the tests; rows of voters.
    heard = [
        [_rows(data, shape) for data, shape in zip(end.received[at:], SHAPES, strict=True)]
        for end, at in ((ends[0], 1), (ends[1], 2))
    ]
    opened = [plus(*both) for both in zip(*heard, strict=True)]
    own = [*coordinator.arrays(), *_of_voters(coordinator_blinds(coordinator.seeds, **sizes))]
    masks = guardian_masks(guardian.seeds, **sizes).keyed
    determined = guardian_determined(guardian.seeds, classes=CLASSES, **sizes)
    others = [
        guardian_votes(guardian.seeds, classes=CLASSES, **sizes),
        *(determined.keyed, determined.constants, determined.products, masks, guardian.seeds),
        *_of_voters(guardian_blinds(guardian.seeds, **sizes)),
    ]
    # With what a server may work out: Z without its own a; k as its own part has it; and these together.
    return [
        bits(*held, *said, *opened, minus(opened[0], held[6]), plus(held[7], plus(held[6], held[6])))
        for held, said in ((own, heard[0]), (others, heard[1]))
    ]


SHAPES = [(VOTERS, REPETITIONS, QUERIES), (2, VOTERS, REPETITIONS), (VOTERS, REPETITIONS)]


def _rows(data, shape):
    values = np.frombuffer(data, "<u4", count=int(np.prod(shape))).reshape(shape)
    return values.transpose(1, 0, 2) if shape[0] == 2 else values


def _of_voters(blinds):
    return blinds.points, blinds.slopes, np.ascontiguousarray(blinds.factors.transpose(1, 0, 2))


def checked(coordinator, guardian, shape, seed, ends):
    terms = Ballots(np.ones(shape, dtype=bool), CLASSES, True, b"view")
    return converse(
        lambda channel: coordinator_checks(
            channel, coordinator, terms, secret=seeded_source(seed, 1)(32), pin=lambda step, value: None
        ),
        lambda channel: guardian_checks(
            channel, guardian, terms, secret=seeded_source(seed, 2)(32), pin=lambda step, value: None
        ),
        channels=ends,
    )[0]


PAIRS = [([0, 1], [2, 2]), ([0, 0], [-1, -1]), ([-1, 2], [1, -1])]


@pytest.mark.parametrize("choices", PAIRS)
def test_neither_server_can_tell_votes_apart_by_its_share_and_the_check(choices) -> None:
    for one, other in zip(*(views_of_the_check(votes, seed) for seed, votes in enumerate(choices)), strict=True):
        assert not tells_apart(one, other)


def test_shares_without_a_mask_would_be_told(monkeypatch) -> None:
    monkeypatch.setattr(shares, "_expanded", lambda label, seeds, count, _: np.full((len(seeds), count), 5, "u4"))
    views = [views_of_the_check(votes, seed) for seed, votes in enumerate(PAIRS[0])]
    assert all(tells_apart(one, other) for one, other in zip(*views, strict=True))


def test_a_sketch_that_is_not_blinded_would_be_told(monkeypatch) -> None:
    """The vectors are shared well, but a is zero."""
    expanded = shares._expanded

    def without_points(label, seeds, count, context):
        stream = expanded(label, seeds, count, context)
        if label.endswith("blinds"):
            stream[:, : REPETITIONS * QUERIES] = 0
        return stream

    monkeypatch.setattr(shares, "_expanded", without_points)
    views = [views_of_the_check(votes, seed) for seed, votes in enumerate(PAIRS[0])]
    assert all(tells_apart(one, other) for one, other in zip(*views, strict=True))


def test_a_commitment_cannot_be_tried_out() -> None:
    """The guardian knows all of the coordinator's share but votes and a seed; the same share commits differently."""
    coordinator, guardian = share_votes(np.array([[0]]), classes=CLASSES, context=b"view", source=seeded_source(1))
    seen = set()
    for seed in range(2):
        ends = recorded()
        checked(coordinator, guardian, (1, 1), seed, ends)
        seen |= {ends[0].received[0][32:64], ends[1].received[0][32:64]}
    assert len(seen) == 4


# The noisy argmax. All queries have the same counts, so that each is one sample.

SAMPLES, THRESHOLD = 256, 40
COUNTS = [([50, 3, 1], [41, 40, 40]), ([0, 0, 39], [13, 12, 11])]


def views_of_the_argmax(counts, seed, monkeypatch):
    """(the coordinator's view, the guardian's), a row per query; both have the same labels and pass bits."""
    seen = []
    conjunction = Evaluator.conjunction

    def watched(self, left, right):
        result = conjunction(self, left, right)
        seen.append(colours(result).reshape(-1, SAMPLES))
        return result

    monkeypatch.setattr(Evaluator, "conjunction", watched)
    classes = len(counts)
    tiled = np.tile(np.array(counts, dtype=np.int64), (SAMPLES, 1))
    coordinators, guardians = split(tiled, np.random.default_rng((seed, 3)))
    zero, ends = np.zeros_like(tiled), recorded()
    opened, _ = converse(
        lambda channel: coordinator_side(
            channel, coordinators, noise=zero, threshold=THRESHOLD, total_units=100, source=seeded_source(seed, 1),
        ),
        lambda channel: guardian_side(
            channel, guardians, noise=zero, threshold=THRESHOLD, total_units=100, source=seeded_source(seed, 2),
        ),
        channels=ends,
    )  # fmt: skip
    assert (opened.labels == (0 if max(counts) >= THRESHOLD else -1)).all()
    gates = conjunctions_a_query(classes=classes, threshold=True)
    half = len(seen) // 2
    coordinator, guardian = (end.received for end in ends)
    matrix = coordinator[3][CHALLENGE_BYTES:]
    coordinators = _view(coordinators, matrix, coordinator[5], coordinator[6:-2], coordinator[-2], seen[:half], gates)
    question = guardian[-2][:-POINT_BYTES]
    return coordinators, _view(guardians, guardian[1], guardian[3], guardian[4:-3], question, seen[half:], gates)


def _view(own, matrix, macs, frames, masks, seen, gates):
    """What one server holds and receives, a row per query; `seen`: of the circuit that it evaluates."""
    classes = own.shape[1]
    tables = np.frombuffer(b"".join(frames), np.uint8).reshape(2 * gates, SAMPLES, 16).transpose(1, 0, 2)
    opened = np.unpackbits(np.frombuffer(masks, np.uint8), count=3 * SAMPLES).reshape(3, SAMPLES).T
    macs = np.frombuffer(macs, "<u4").reshape(-1, SAMPLES).T
    evaluated = np.concatenate([bits(own, macs, tables), opened.astype(bool), np.concatenate(seen).T], axis=1)
    matrix = np.frombuffer(matrix, np.uint8).reshape(COLUMNS, -1)
    matrix = np.unpackbits(matrix, axis=1, bitorder="little", count=BITS * classes * SAMPLES)
    matrix = matrix.reshape(COLUMNS, BITS, classes, SAMPLES)
    # What each column would be if it were the other's numbers in clear, put together with the server's own.
    words = (matrix[0].astype(np.uint32) << np.arange(BITS, dtype=np.uint32)[:, None, None]).sum(axis=0, dtype="u4")
    tried = plus(words.T % np.uint32(P), plus(own, own))
    return np.concatenate([evaluated, bits(tried), matrix.reshape(-1, SAMPLES).T.astype(bool)], axis=1)


def views_of_both(counts, monkeypatch):
    return zip(*(views_of_the_argmax(one, seed, monkeypatch) for seed, one in enumerate(counts)), strict=True)


@pytest.mark.parametrize("counts", COUNTS)
def test_neither_server_can_tell_counts_apart_by_the_argmax(counts, monkeypatch) -> None:
    for one, other in views_of_both(counts, monkeypatch):
        assert not tells_apart(one, other)


def test_tables_under_a_broken_hash_would_be_told(monkeypatch) -> None:
    monkeypatch.setattr(LabelHash, "finished", lambda self, permuted, tweaks: np.zeros_like(permuted))
    for views in views_of_both(COUNTS[0], monkeypatch):
        assert tells_apart(*views)


def test_an_extension_matrix_that_is_not_masked_would_be_told(monkeypatch) -> None:
    """Both keys of each base transfer are the same, so the matrix is the receiver's bits."""
    monkeypatch.setattr(oblivious_transfer, "_key", lambda number, *_: derived_key("same", bytes([number])))
    for views in views_of_both(COUNTS[0], monkeypatch):
        assert tells_apart(*views)


@pytest.mark.parametrize("broken", [False, True])
def test_base_transfers_do_not_show_what_was_chosen_unless_scalars_repeat(broken, monkeypatch) -> None:
    views = []
    for chosen in (False, True):
        rows = []
        for seed in range(4):
            source = seeded_source(seed, int(chosen))
            sender = BaseSender(seeded_source(7))
            if broken:
                monkeypatch.setattr(oblivious_transfer, "scalar", lambda source: b"\x07" + bytes(31))
            message = BaseReceiver(sender.message, np.full(COLUMNS, chosen), source).message
            monkeypatch.undo()
            rows.append(np.frombuffer(message, np.uint8).reshape(COLUMNS, 2 * POINT_BYTES))
        views.append(bits(np.concatenate(rows)))
    assert tells_apart(*views) == broken


def test_the_comparison_itself_finds_a_bit_of_a_quarter_and_no_fair_one() -> None:
    rng = np.random.default_rng(1)
    fair, other = rng.random((2, 2000, 300)) < 0.5
    assert not tells_apart(fair, other)
    biased = other.copy()
    biased[:, 17] = rng.random(2000) < 0.75
    assert tells_apart(fair, biased)
