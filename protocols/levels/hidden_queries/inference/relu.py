"""ReLU with exact rounding: y shared modulo 2^32 -> max(y + 2^(shift - 1), 0) >> shift, shared likewise.

Below, y has its half. Three openings: M = y + r; the masked lookups (comparison.py); and d = [y >= 0] and the low
borrow c = [M mod 2^s < r mod 2^s], masked by dealt bits. For y >= 0 and |y| < 2^(k-1),
y >> s = (M >> s) - (r >> s) - c + 2^(k-s) w, where w, whether M wrapped round, is 1 iff r's top bit is 1 and M's is 0:
no second comparison is needed (Rathee et al. 2021, "SIRNN": the wrap from a known sign bit). The product with d is
linear in dealt products once d and c are open under their masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8, UInt32
from numpy import ndarray

from protocols.levels.hidden_queries.inference import comparison
from protocols.levels.hidden_queries.inference.comparison import Digits
from protocols.levels.hidden_queries.inference.material import Arrays, Piece


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
        return comparison.tables(self.digits, mask), comparison.products(self.digits, lookup_masks, 255), words

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
        return comparison.looked_up(self._gate.digits, self._tables, self._opened) ^ self._lookup_masks

    def bits(self, mine: UInt8[ndarray, "_ _"], theirs: UInt8[ndarray, "_ _"]) -> UInt8[ndarray, "2 octets"]:
        """This party's share of masked d and c, now that the masked lookups are open."""
        borrow, low = comparison.borrow_bits(self._gate.digits, self._products, mine ^ theirs)
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
