"""The proof of sums: honest sums are taken as they are, no malformed one is, and what is opened says nothing."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from protocols.crypto.field import P, from_integers, minus, plus
from protocols.crypto.prg import derived_key, field_elements
from protocols.crypto.shared_squares import BLOCK, POINTS, Coin
from protocols.errors import InvalidInput
from protocols.sums.bounded import Bounded, CountedCells

FALSE_ALARM = 1e-6
TRIALS, COINS = 4_000, 20
NORM = Bounded(3, 2, most=5_000_000, signed=True)
# Two partitions in which a record fills one cell of each; and one in which it fills two.
CELLS = CountedCells(5, 2, partitions=(2, 3), each=1, population=20, step=7)
NEAREST = CountedCells(4, 2, partitions=(4,), each=2, population=20, step=7)


def taken(proof, bits, *, seed=bytes(32), change=lambda whole: None):
    """(which of these bits, with an honest proof of them but for the change, two servers take; their sums)."""
    whole = proof.layout.proved(bits, proof.squared(bits, leads=True), seed=seed[:16])
    change(whole)
    other = field_elements(derived_key("share", seed), whole.size).reshape(whole.shape)
    coin, said = Coin.of(seed, proof.layout), []
    for numbers, leads in ((minus(whole, other), True), (other, False)):
        shared = proof.layout.parts(numbers)
        opened = proof.layout.opened(shared, proof.squared(shared.bits, leads=leads), coin)
        said.append((opened, proof.zeros(shared, leads=leads), proof.sums(shared.bits, leads=leads)))
    (first, zeros, sums), (second, other_zeros, other_sums) = said
    return coin.holds(first, second) & ~plus(zeros, other_zeros).any(axis=-1), plus(sums, other_sums)


def of_records(proof, rng, *, trials, records=None):
    """Sums of so many records, each of a class and in random cells."""
    found = np.zeros((trials, proof.rows, proof.columns), np.int64)
    for trial in range(trials):
        for _ in range(rng.integers(0, proof.population + 1) if records is None else records):
            column, before = rng.integers(proof.columns), 0
            for rows in proof.partitions:
                found[trial, before + rng.choice(rows, proof.each, replace=False), column] += proof.step
                before += rows
    return found


@given(st.integers(1, 90), st.integers(1, 2**29), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_a_sum_within_the_norm_is_taken_as_it_is(rows, most, signed, seed) -> None:
    proof, rng = Bounded(rows, 1, most, signed), np.random.default_rng(seed)
    drawn = rng.normal(size=(3, rows, 1))
    sums = np.trunc(drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * most).astype(np.int64)
    sums[0], sums[1, 1:], sums[1, 0] = 0, 0, -most
    bits = proof.bits(sums if signed else abs(sums))
    assert set(bits.ravel().tolist()) <= {0, 1}
    held, shown = taken(proof, bits, seed=rng.bytes(32))
    assert held.all()
    np.testing.assert_array_equal(shown, from_integers(sums if signed else abs(sums)))
    assert most <= proof.proved <= 1.05 * most


@pytest.mark.parametrize("proof", [CELLS, NEAREST])
def test_a_sum_of_records_is_taken_as_it_is(proof) -> None:
    sums = of_records(proof, np.random.default_rng(1), trials=200)
    held, shown = taken(proof, proof.bits(sums))
    assert held.all()
    np.testing.assert_array_equal(shown, from_integers(sums))


def other_bit(value, *, room=False):
    def change(proof, bits, rng):
        cells = proof.cells * proof.width
        at = rng.integers(*((cells, bits.shape[1]) if room else (0, cells)), len(bits))
        bits[np.arange(len(bits)), at] = value % P

    return change


def cancelling(proof, bits, rng):
    at = rng.permuted(np.tile(np.arange(proof.cells * proof.width), (len(bits), 1)), axis=1)[:, :2]
    np.put_along_axis(bits, at, np.uint32([2, P - 1]), axis=1)


def longest(proof, bits, rng):
    """A number of ones alone: beyond the norm."""
    at = rng.integers(proof.cells, size=len(bits))[:, None] * proof.width + np.arange(proof.width)
    np.put_along_axis(bits, at, np.uint32(1), axis=1)


def one_more(proof, bits, rng):
    """A step more in one cell, by its lowest bit."""
    at = rng.integers(proof.cells, size=len(bits)) * proof.width
    bits[np.arange(len(bits)), at] ^= 1


def twice(proof, bits, rng):
    """Three records of which each says all its steps in one cell; the room of that cell is 0."""
    counts = np.zeros((len(bits), proof.rows, proof.columns), np.int64)
    counts[:, 0, 0] = proof.each * 3 * proof.step
    bits[:] = proof.bits(counts)
    bits[:, proof.cells * proof.width : (proof.cells + 1) * proof.width] = 0


def changed(part):
    def change(layout, whole, rng):
        numbers = getattr(layout.parts(whole), part)
        flat = numbers.reshape(len(whole), -1)
        row, at = np.arange(len(whole)), rng.integers(flat.shape[1], size=len(whole))
        flat[row, at] = plus(flat[row, at], rng.integers(1, P, len(whole)).astype(np.uint32))
        numbers[...] = flat.reshape(numbers.shape)

    return change


MALFORMED = {
    "a bit is 2": (NORM, other_bit(2), None),
    "a bit is -1": (CELLS, other_bit(-1), None),
    "a bit is one half": (NORM, other_bit((P + 1) // 2), None),
    "a bit of the room is 2": (NEAREST, other_bit(2, room=True), None),
    "two bits that cancel": (NORM, cancelling, None),
    "a number beyond the norm": (NORM, longest, None),
    "cells that do not add up": (CELLS, one_more, None),
    "two votes of a record in a cell": (NEAREST, twice, None),
    "another square": (NORM, None, changed("beyond")),
    "another square of a digit": (NORM, None, changed("within")),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_no_malformed_sum_is_taken(kind) -> None:
    """A proof that took one of a thousand of a kind would be found 98 times of 100."""
    proof, of_bits, of_proof = MALFORMED[kind]
    rng, found, each = np.random.default_rng(2), 0, TRIALS // COINS
    for _ in range(COINS):
        if proof is NORM:
            sums = rng.integers(-2_000_000, 2_000_001, (each, proof.rows, proof.columns))
        else:
            sums = np.tile(of_records(proof, rng, trials=10), (each // 10, 1, 1))
        bits = proof.bits(sums)
        if of_bits is not None:
            of_bits(proof, bits, rng)
        wrong = (lambda whole: None) if of_proof is None else (lambda whole: of_proof(proof.layout, whole, rng))
        found += int(taken(proof, bits, seed=rng.bytes(32), change=wrong)[0].sum())
    assert found == 0


def test_a_sum_of_more_records_than_were_declared_has_no_bits() -> None:
    for proof in (CELLS, NEAREST):
        sums = of_records(proof, np.random.default_rng(3), trials=20, records=21)
        bits = proof.bits(sums)
        # Of -1 records that are left: all ones, which is another number.
        assert not taken(proof, bits)[0].any()


@pytest.mark.parametrize("rows", [1, 7, 400])
def test_bits_of_a_sum_beyond_what_is_said_to_be_proved_leave_no_room_that_fits(rows) -> None:
    proof, rng = Bounded(rows, 1, 50_000, signed=True), np.random.default_rng(rows)
    sums = rng.integers(0, 1 << proof.width, (200, rows, 1)) - proof._offset
    digits = ((sums + proof._offset) >> proof.low) - proof._digit_offset
    norms, left = np.linalg.norm(sums[..., 0], axis=1), proof.squares - (digits**2).sum(axis=(1, 2))
    assert (norms > proof.proved).any()
    assert (left[norms > proof.proved] < 0).all()
    # As whole numbers, so that no sums of squares and rooms wrap around the field.
    assert BLOCK * (1 << 2 * proof._digit_bits) < P
    assert proof._bounds << proof.squares.bit_length() <= P


def test_on_a_small_field_no_false_proof_holds_at_more_points_than_its_degree() -> None:
    """All proofs of two numbers and one random value modulo 11: where f^2 and what was shared for it agree."""
    p, nodes = 11, 3
    values = np.array(list(product(range(p), repeat=nodes)))
    basis = np.array([[_at(5, node, x, p) for node in range(5)] for x in range(5, p)])
    short = np.array([[_at(nodes, node, x, p) for node in range(nodes)] for x in range(3, p)])
    square = (values @ short[2:].T % p) ** 2 % p
    right = ((values @ short[:2].T) ** 2) % p
    others = np.array(list(product(range(p), repeat=3)))
    for row, (x, y, _) in enumerate(values.tolist()):
        shared = np.column_stack([np.tile([x, y], (len(others), 1)), others])
        agree = (shared @ basis.T % p == square[row]).sum(axis=1)
        honest = (others == [values[row, 2] ** 2 % p, *right[row]]).all(axis=1) & ({x, y} <= {0, 1})
        assert (agree[honest] == p - 5).all()
        assert agree[~honest].max() <= 4


def _at(nodes, node, x, p):
    found = 1
    for each in range(nodes):
        if each != node:
            found = found * (x - each) * pow(node - each, -1, p) % p
    return found


def test_what_is_opened_of_two_sums_is_uniform_whatever_they_are() -> None:
    coin = Coin.of(bytes(32), NORM.layout)
    for entry in (0, 2_000_000):
        bits = NORM.bits(np.full((300, 3, 2), entry))
        shared = NORM.layout.parts(NORM.layout.proved(bits, squared := NORM.squared(bits, leads=True), seed=bytes(16)))
        values, _ = NORM.layout.opened(shared, squared, coin)
        high = values.ravel() >> 30
        assert binomtest(int(high.sum()), high.size, 0.5).pvalue > FALSE_ALARM
    # Three random values and three points: what they add is every triple, each once.
    a, b, c = coin.values[:, -POINTS:].astype(object)
    minor = a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0]) + a[2] * (b[0] * c[1] - b[1] * c[0])
    assert minor % P != 0


def test_counts_and_squares_that_could_wrap_around_are_refused() -> None:
    with pytest.raises(InvalidInput):
        CountedCells(2**12, 2, partitions=(2**12,), each=1, population=2**20, step=1)
    with pytest.raises(InvalidInput):
        Bounded(2**24, 2, most=2**29, signed=True)


@pytest.mark.parametrize("signed", [False, True])
def test_no_sum_passes_with_more_than_a_fifth_above_its_norm(signed) -> None:
    for most in (2**16, 2**24 + 1, 2**29 - 1, 2**30 - 1):
        assert all(Bounded(rows, 1, most, signed).proved <= 1.2 * most for rows in (64, 5_400, 30_000))
        with pytest.raises(InvalidInput):  # ten times, of digits of seven bits
            Bounded(500_000, 1, most, signed)
