"""Gates of comparisons and ReLU, and the dealt randomness that they use.

Dealt randomness as arrays: how each kind is shared, drawn from a seed, and corrected.

`free` arrays are the sum of what both parties' seeds give. `derived` arrays are functions of free ones: the querying
party's share comes from its seed, and the dealer sends the answering party the difference.

The sign of a shared number, from a masked opening and dealt tables, in one more opening.

Both parties see M = y + r modulo 2^k; r is a mask of the dealer's. With M' and r' without their top bits,
y < 0 is M_top ^ r_top ^ [M' < r']. M' and r' are cut into digits of at most 6 bits. For each digit the dealer shares
the truth tables of [v < digit of r] and [v = digit of r] over all v, which are looked up at the public M
without a message (one-time truth tables: Ishai, Kushilevitz, Meldgaard, Orlandi, Paskin-Cherniavsky 2013). The
lookups l_j, e_j make the borrow b = l_t + e_t (l_(t-1) + e_(t-1) (... e_1 l_0)), of which at most one term is 1. Its
products of many factors take one opening, of the lookups masked, with dealt products of the masks (Patra, Schneider,
Suresh, Yalame 2021, "ABY2.0": multiplication gates of many inputs).

ReLU with exact rounding: y shared modulo 2^32 -> max(y + 2^(shift - 1), 0) >> shift, shared likewise.

Below, y has its half. Three openings: M = y + r; the masked lookups (comparison.py); and d = [y >= 0] and the low
borrow c = [M mod 2^s < r mod 2^s], masked by dealt bits. For y >= 0 and |y| < 2^(k-1),
y >> s = (M >> s) - (r >> s) - c + 2^(k-s) w, where w, whether M wrapped round, is 1 iff r's top bit is 1 and M's is 0:
no second comparison is needed (Rathee et al. 2021, "SIRNN": the wrap from a known sign bit). The product with d is
linear in dealt products once d and c are open under their masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import UInt8, UInt32, UInt64
from numpy import ndarray

from protocols.crypto.field import minus, plus
from protocols.crypto.prg import Stream
from protocols.errors import MalformedMessage
from protocols.ranges import in_range
from protocols.wire.messages import Arrays

Group = Literal["xor", "ring", "field"]


@dataclass(frozen=True)
class Piece:
    """One array: "xor" of bits, "ring" of integers modulo the dtype's size, or "field" F_p."""

    group: Group
    dtype: Literal["<u1", "<u4", "<u8"]
    shape: tuple[int, ...]


def drawn(stream: Stream, pieces: tuple[Piece, ...]) -> Arrays:
    """The next arrays of a seed."""
    return tuple(
        stream.field(piece.shape) if piece.group == "field" else stream.words(piece.shape, piece.dtype)
        for piece in pieces
    )


def joined(pieces: tuple[Piece, ...], left: Arrays, right: Arrays) -> Arrays:
    """The secrets that two shares add up to."""
    return tuple(_sum(piece, a, b) for piece, a, b in zip(pieces, left, right, strict=True))


def corrections(pieces: tuple[Piece, ...], secrets: Arrays, drawn_share: Arrays) -> Arrays:
    """The other share of each secret."""
    return tuple(_difference(piece, a, b) for piece, a, b in zip(pieces, secrets, drawn_share, strict=True))


def received(step: str, arrays: Arrays, pieces: tuple[Piece, ...]) -> Arrays:
    """Returns `arrays` if they are what `step` must bring. Raises MalformedMessage naming the fault."""
    if not isinstance(arrays, tuple) or len(arrays) != len(pieces):
        count = len(arrays) if isinstance(arrays, tuple) else type(arrays).__name__
        raise MalformedMessage(f"{step} has {count} arrays; expected {len(pieces)}")
    for number, (array, piece) in enumerate(zip(arrays, pieces, strict=True), 1):
        if not isinstance(array, ndarray) or array.dtype.str.replace("|", "<") != piece.dtype:
            found = array.dtype.str if isinstance(array, ndarray) else type(array).__name__
            raise MalformedMessage(f"{step}: array {number} is {found}; expected {piece.dtype}")
        if array.shape != piece.shape:
            raise MalformedMessage(f"{step}: array {number} has shape {array.shape}; expected {piece.shape}")
        if piece.group == "field":
            in_range("inference", "field element", array)
    return tuple(np.ascontiguousarray(array) for array in arrays)


def _sum(piece: Piece, left: ndarray, right: ndarray) -> ndarray:
    if piece.group == "xor":
        return left ^ right
    if piece.group == "ring":
        return left + right
    return plus(left, right)


def _difference(piece: Piece, left: ndarray, right: ndarray) -> ndarray:
    if piece.group == "xor":
        return left ^ right
    if piece.group == "ring":
        return left - right
    return minus(left, right)


DIGIT_BITS = 6
_ONE = np.uint64(1)


@dataclass(frozen=True)
class Digits:
    """How the low bits of M are cut: `widths` from the lowest; the lowest `low` digits are the `shift` lowest bits."""

    bits: int
    widths: tuple[int, ...]
    low: int

    @classmethod
    def of(cls, bits: int, shift: int) -> Digits:
        """Digits of the bits - 1 bits below the sign, cut at `shift`."""
        low = _cut(shift)
        return cls(bits, low + _cut(bits - 1 - shift), len(low))

    @property
    def count(self) -> int:
        return len(self.widths)

    @property
    def lookups(self) -> int:
        """Tables per number: l for each digit, e for each but the lowest."""
        return 2 * self.count - 1

    @property
    def products(self) -> int:
        """Dealt products per number: those of the e, and for each l its own with those of the e above it."""
        return 2 ** (self.count - 1) + 2**self.count - 1

    def split(self, values: UInt32[ndarray, " numbers"]) -> UInt64[ndarray, "digits numbers"]:
        """The digits of each value; the sign bit and what is above it are left out."""
        offsets = np.cumsum([0, *self.widths[:-1]])
        digits = [(values >> np.uint32(at)) & np.uint32(2**w - 1) for at, w in zip(offsets, self.widths, strict=True)]
        return np.array(digits, dtype=np.uint64)

    def wrapped(self, values: UInt32[ndarray, "..."]) -> UInt32[ndarray, "..."]:
        """values modulo 2^bits."""
        return values & np.uint32(2**self.bits - 1)

    def top_bits(self, values: UInt32[ndarray, "..."]) -> UInt8[ndarray, "..."]:
        """The sign bits, 0 or 1."""
        return ((values >> np.uint32(self.bits - 1)) & np.uint32(1)).astype(np.uint8)


def _cut(bits: int) -> tuple[int, ...]:
    digits = -(-bits // DIGIT_BITS)
    return tuple((bits + place) // digits for place in range(digits))


def tables(digits: Digits, masks: UInt32[ndarray, " numbers"]) -> UInt64[ndarray, "lookups numbers"]:
    """The dealer's truth tables, bit v of a word for digit value v: l from the lowest digit on, then e from the second.

    The mask's own top bit is folded into the top digit's l, so that the lookups give y's sign up to M's top bit.
    """
    of_mask = digits.split(masks)
    equal = _ONE << of_mask
    less = equal - _ONE
    less[-1] ^= np.uint64(0) - digits.top_bits(masks)
    return np.concatenate([less, equal[1:]])


def looked_up(
    digits: Digits, shares: UInt64[ndarray, "lookups numbers"], opened: UInt32[ndarray, " numbers"]
) -> UInt8[ndarray, "lookups octets"]:
    """A party's bits of the tables at M, packed eight numbers per byte."""
    at = digits.split(opened)
    bits = (shares >> np.concatenate([at, at[1:]])) & _ONE
    return np.packbits(bits.astype(np.uint8), axis=1)


def products(digits: Digits, masks: UInt8[ndarray, "lookups n"], one: int) -> UInt8[ndarray, "products n"]:
    """All products of the masks of lookups that one opening needs, by & on packed bits or on bits that are 0 or 1.

    one: the empty product, 1 or 255.
    """
    cube = np.full((1, masks.shape[1]), one, dtype=np.uint8)
    for place in range(digits.count, digits.lookups):
        cube = np.concatenate([cube, cube & masks[place]])
    with_l = [cube[:: 2**place] & masks[place] for place in range(digits.count)]
    return np.concatenate([cube, *with_l])


def _cubes(digits: Digits, shares: UInt8[ndarray, "products n"]) -> tuple[ndarray, Arrays]:
    """(products of e only; for each digit those with its l); bit i of a row's number says whether e_(i+1) is in it."""
    sizes = [2 ** (digits.count - 1 - place) for place in range(digits.count)]
    parts = np.split(shares, np.cumsum([2 ** (digits.count - 1), *sizes])[:-1])
    return parts[0], tuple(parts[1:])


def borrow_bits(
    digits: Digits, shares: UInt8[ndarray, "products octets"], opened: UInt8[ndarray, "lookups octets"]
) -> tuple[UInt8[ndarray, " octets"], UInt8[ndarray, " octets"]]:
    """A party's packed shares of (the borrow from all digits, the borrow from the lowest `shift` bits)."""
    only_e, with_l = _cubes(digits, shares)
    low = np.zeros_like(shares[0])
    # Masked x = X ^ m: the share of x P is that of m P, and of P where X is 1. From the lowest digit up, the cube
    # of products still to be multiplied halves.
    borrow = with_l[0] ^ (opened[0] & only_e)
    for place in range(digits.count):
        if place:
            term = with_l[place] ^ (opened[place] & only_e[:: 2**place])
            borrow = borrow[1::2] ^ (opened[digits.count + place - 1] & borrow[::2]) ^ term
        if place == digits.low - 1:
            low = borrow[0]
    return borrow[0], low


def sign_products(
    digits: Digits, masks: UInt8[ndarray, "lookups numbers"], top_bits: UInt8[ndarray, " numbers"]
) -> UInt8[ndarray, "products numbers"]:
    """As `products`, for integer shares modulo 256 of the sign; top_bits: those of the numbers' masks.

    With r_top folded into the top l, the sum is of disjoint terms only if the others are counted with 1 - 2 r_top.
    """
    made = products(digits, masks, 1)
    made[:-1] *= (1 - 2 * top_bits).astype(np.uint8)
    return made


def sign_shares(
    digits: Digits, shares: UInt8[ndarray, "products numbers"], opened: UInt8[ndarray, "lookups octets"],
    masked: UInt32[ndarray, " numbers"], *, leads: bool,
) -> UInt8[ndarray, " numbers"]:  # fmt: skip
    """A party's integer shares, modulo 256, of [y < 0]. leads: whether it adds the public constants."""
    numbers = shares.shape[1]
    # 0 or 255: np.where is several times slower than arithmetic on these.
    public = np.uint8(0) - np.unpackbits(opened, axis=1, count=numbers)
    only_e, with_l = _cubes(digits, shares)
    one = np.uint8(leads)
    # Masked x = X ^ m: the share of x P is that of m P where X is 0, and of P - m P where it is 1.
    borrow = _times(public[0], only_e, with_l[0])
    for place in range(1, digits.count):
        top = place == digits.count - 1
        borrow = _times(public[digits.count + place - 1], borrow[::2], borrow[1::2])
        borrow += _times(public[place], one if top else only_e[:: 2**place], with_l[place])
    return _times(np.uint8(0) - digits.top_bits(masked), one, borrow[0])


def _times(
    opened: UInt8[ndarray, " numbers"], whole: UInt8[ndarray, "..."] | np.uint8, masked: UInt8[ndarray, "..."]
) -> UInt8[ndarray, "..."]:
    """masked where `opened` is 0, whole - masked where it is 255."""
    return masked + ((whole - masked - masked) & opened)


@dataclass(frozen=True)
class ReLUGate:
    """ReLUs of `numbers` values. Dealt: masks r, masks of lookups, masks of (d, c); tables, products, seven words."""

    numbers: int
    shift: int
    digits: Digits

    @property
    def octets(self) -> int:
        """Bytes of one packed bit per number."""
        return -(-self.numbers // 8)

    @property
    def free(self) -> tuple[Piece, ...]:
        return (
            Piece("ring", "<u4", (self.numbers,)),
            Piece("xor", "<u1", (self.digits.lookups, self.octets)),
            Piece("xor", "<u1", (2, self.octets)),
        )

    @property
    def derived(self) -> tuple[Piece, ...]:
        return (
            Piece("xor", "<u8", (self.digits.lookups, self.numbers)),
            Piece("xor", "<u1", (self.digits.products, self.octets)),
            Piece("ring", "<u4", (7, self.numbers)),
        )

    def secrets(self, free: Arrays) -> Arrays:
        """What is derived: tables, products of masks, and beta, gamma, beta gamma, R, W, beta R, beta W."""
        mask, lookup_masks, bit_masks = free
        beta, gamma = np.unpackbits(bit_masks, axis=1, count=self.numbers).astype(np.uint32)
        mask = self.digits.wrapped(mask)
        shifted = mask >> np.uint32(self.shift)
        wrap = self.digits.top_bits(mask) * self._wrap
        words = np.stack([beta, gamma, beta & gamma, shifted, wrap, beta * shifted, beta * wrap])
        return tables(self.digits, mask), products(self.digits, lookup_masks, 255), words

    @property
    def _wrap(self) -> np.uint32:
        return np.uint32((1 << (self.digits.bits - self.shift)) % 2**32)


class ReLUSide:
    """One party's side of the gate. leads: it adds the public constants."""

    def __init__(self, gate: ReLUGate, free: Arrays, derived: Arrays, *, leads: bool) -> None:
        self._gate, self._leads = gate, leads
        self._mask, self._lookup_masks, self._bit_masks = free
        self._tables, self._products, self._words = derived

    def masked(self, share: UInt32[ndarray, " numbers"]) -> UInt32[ndarray, " numbers"]:
        """This party's share of M, with a half added so that dropping bits rounds."""
        half = np.uint32(((1 << self._gate.shift) >> 1) if self._leads else 0)
        return self._gate.digits.wrapped(share + half + self._mask)

    def lookups(self, mine: UInt32[ndarray, " numbers"], theirs: UInt32[ndarray, " numbers"]) -> UInt8[ndarray, "_ _"]:
        """This party's share of the masked lookups, now that M is open."""
        self._opened = self._gate.digits.wrapped(mine + theirs)
        return looked_up(self._gate.digits, self._tables, self._opened) ^ self._lookup_masks

    def bits(self, mine: UInt8[ndarray, "_ _"], theirs: UInt8[ndarray, "_ _"]) -> UInt8[ndarray, "2 octets"]:
        """This party's share of masked d and c, now that the masked lookups are open."""
        borrow, low = borrow_bits(self._gate.digits, self._products, mine ^ theirs)
        if self._leads:
            borrow = borrow ^ np.packbits(1 ^ self._gate.digits.top_bits(self._opened))
        return np.stack([borrow, low]) ^ self._bit_masks

    def output(
        self, mine: UInt8[ndarray, "2 octets"], theirs: UInt8[ndarray, "2 octets"]
    ) -> UInt32[ndarray, " numbers"]:
        """This party's share of the result, now that masked d and c are open."""
        # 0 or all ones: np.where is several times slower than arithmetic on these.
        d, c = np.uint32(0) - np.unpackbits(mine ^ theirs, axis=1, count=self._gate.numbers)
        beta, gamma, both, shifted, wrap, beta_shifted, beta_wrap = self._words
        high = self._opened >> np.uint32(self._gate.shift)
        unwrapped = (1 - self._gate.digits.top_bits(self._opened)).astype(np.uint32)
        value = unwrapped * wrap - shifted
        if self._leads:
            value += high
        by_beta = beta * high - beta_shifted + unwrapped * beta_wrap
        # Shares of c, then of beta c; with d = D ^ beta, d x is beta x where D is 0 and x - beta x where it is 1.
        one = np.uint32(self._leads)
        value -= gamma + ((one - gamma - gamma) & c)
        by_beta -= both + ((beta - both - both) & c)
        return by_beta + ((value - by_beta - by_beta) & d)
