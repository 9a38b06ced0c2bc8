"""Garbled gates: their truth table, what an evaluator holds, and the hash they stand on."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from protocols.crypto import garbling
from protocols.crypto.channel import pair
from protocols.crypto.garbling import (
    GATE_BYTES,
    Evaluator,
    Garbler,
    LabelHash,
    TableReader,
    TableWriter,
    chosen,
    colours,
    conjunctions_a_query,
    noisy_argmax,
)
from protocols.errors import MalformedMessage
from tests.harness.two_server_sides import converse

KEY = bytes(range(16))


def random_labels(rng, *shape):
    return rng.integers(0, 2**64, (*shape, 2), dtype=np.uint64)


def random_offset(rng):
    return random_labels(rng) | np.array([1, 0], dtype=np.uint64)


def garbled(left_bits, right_bits, gate, *, seed=0, gates=None):
    """(the garbler's wires of zero, the evaluator's wires, the offset) of one function of two inputs."""
    rng = np.random.default_rng(seed)
    offset = random_offset(rng)
    zeros = [random_labels(rng, *bits.shape) for bits in (left_bits, right_bits)]
    active = [zero ^ chosen(bits, offset) for zero, bits in zip(zeros, (left_bits, right_bits), strict=True)]
    count = np.broadcast(left_bits, right_bits).size if gates is None else gates

    def garble(channel):
        writer = TableWriter(channel)
        wires = gate(Garbler(offset, LabelHash(KEY), writer), *zeros)
        writer.flush()
        return wires

    def evaluate(channel):
        evaluator = Evaluator(LabelHash(KEY), TableReader(channel, count))
        return gate(evaluator, *active)

    return (*converse(garble, evaluate), offset)


def both_values(bits_of_seed=1, count=200):
    return np.random.default_rng(bits_of_seed).random((2, count)) < 0.5


def test_an_and_gate_gives_the_label_of_the_conjunction() -> None:
    left, right = both_values()
    zeros, active, offset = garbled(left, right, lambda gates, a, b: gates.conjunction(a, b))
    np.testing.assert_array_equal(active, zeros ^ chosen(left & right, offset))


def test_inputs_broadcast_as_arrays_do() -> None:
    left, right = both_values()[0].reshape(2, 100), both_values()[1].reshape(1, 200)[:, :100]
    zeros, active, offset = garbled(left, right, lambda gates, a, b: gates.conjunction(a, b))
    np.testing.assert_array_equal(active, zeros ^ chosen(left & right, offset))


def test_a_negation_and_an_exclusive_or_need_no_table() -> None:
    left, right = both_values()
    zeros, active, offset = garbled(left, right, lambda gates, a, b: gates.negation(a ^ b), gates=0)
    np.testing.assert_array_equal(active, zeros ^ chosen(~(left ^ right), offset))


def test_tables_are_cut_into_frames_and_put_together_again(monkeypatch) -> None:
    monkeypatch.setattr(garbling, "_FRAME_BYTES", 7 * GATE_BYTES // 2)
    left, right = both_values(count=23)
    zeros, active, _ = garbled(
        left, right, lambda gates, a, b: gates.conjunction(gates.conjunction(a, b), gates.negation(b)), gates=46
    )
    np.testing.assert_array_equal(active, zeros)


def test_an_evaluator_holds_one_label_a_wire_and_its_colour_is_even() -> None:
    """The other label differs by the offset, which is in nothing that it got; |z| > 6 has probability 2e-9."""
    left, right = np.zeros(4000, dtype=bool), np.ones(4000, dtype=bool)
    zeros, active, offset = garbled(left, right, lambda gates, a, b: gates.conjunction(a, b))
    np.testing.assert_array_equal(active, zeros)
    assert abs(int(colours(active).sum()) - 2000) < 6 * np.sqrt(4000) / 2
    differences = active[:, None] ^ active[None, :2]
    assert not (differences == offset).all(axis=-1).any()


def test_a_wrong_label_gives_garbage() -> None:
    left, right = both_values()
    flipped = np.array([2, 0], dtype=np.uint64)

    def gate(gates, a, b):
        return gates.conjunction(a ^ flipped if isinstance(gates, Evaluator) else a, b)

    zeros, active, offset = garbled(left, right, gate)
    assert not (active == zeros).all(axis=-1).any()
    assert not (active == zeros ^ offset).all(axis=-1).any()


@pytest.mark.parametrize("threshold", [False, True])
def test_a_garbled_circuit_has_as_many_tables_as_the_plain_one_has_gates(threshold) -> None:
    classes, queries = 5, 3
    rng = np.random.default_rng(1)
    ends = pair()
    writer = TableWriter(ends[0])
    garbler = Garbler(random_offset(rng), LabelHash(KEY), writer)
    wires = [random_labels(rng, 31, classes, queries) for _ in range(2)]
    noisy_argmax(garbler, *wires, threshold=threshold)
    writer.flush()
    assert ends[0].sent == GATE_BYTES * queries * conjunctions_a_query(classes=classes, threshold=threshold)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_frame_of_another_size_is_refused(size) -> None:
    here, there = pair(wait_s=0.1)
    there.send(bytes(size))
    with pytest.raises(MalformedMessage):
        TableReader(here, 1).read((1,))


def test_the_hash_is_the_cited_function_of_two_calls_of_aes() -> None:
    """TMMO of Guo et al. 2020: pi(pi(x) ^ i) ^ pi(x), block by block."""

    def pi(block: bytes) -> bytes:
        return Cipher(algorithms.AES(KEY), modes.ECB()).encryptor().update(block)

    rng = np.random.default_rng(2)
    labels, tweaks = random_labels(rng, 3, 4), rng.integers(0, 2**64, (3, 4), dtype=np.uint64)
    hashing = LabelHash(KEY)
    found = hashing.finished(hashing.permuted(labels), tweaks)
    for label, tweak, result in zip(labels.reshape(-1, 2), tweaks.ravel(), found.reshape(-1, 2), strict=True):
        inner = pi(label.astype("<u8").tobytes())
        tweaked = bytes(a ^ b for a, b in zip(inner, int(tweak).to_bytes(16, "little"), strict=True))
        assert result.astype("<u8").tobytes() == bytes(a ^ b for a, b in zip(pi(tweaked), inner, strict=True))


def test_no_tweak_is_used_twice(monkeypatch) -> None:
    seen = []
    finished = LabelHash.finished

    def recorded(self, permuted, tweaks):
        seen.append(tweaks.ravel().copy())
        return finished(self, permuted, tweaks)

    monkeypatch.setattr(LabelHash, "finished", recorded)
    rng = np.random.default_rng(1)
    garbler = Garbler(random_offset(rng), LabelHash(KEY), TableWriter(pair()[0]))
    for _ in range(2):
        noisy_argmax(garbler, *(random_labels(rng, 31, 3, 2) for _ in range(2)), threshold=True)
    used, times = np.unique(np.concatenate(seen), return_counts=True)
    # Once for each of the two labels of a half gate's input.
    assert (times == 2).all()
    assert len(used) == 2 * 2 * 2 * conjunctions_a_query(classes=3, threshold=True)
