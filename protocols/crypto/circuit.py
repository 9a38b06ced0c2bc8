"""The circuit of a noisy argmax over two shares, written once over abstract gates: plain bits, garbler, evaluator.

For each query and class it takes the two shares a, b in [0, p) of a number x in F_p and forms D = a + b + 1 mod 2^31
by a chain of carries. With x in [0, p): a + b = x + p c for a bit c, so D = x + 1 - c. The bit c is never computed:

- *Argmax*: the shares are doubled beforehand, so x = 2 y with y in [0, 2^30): then D // 2 = y, whatever c is. 30 ANDs
  per class, after which y is an ordinary integer of 30 bits and a tournament compares (30) and selects (30).
- *Threshold*: if y was shifted so that a threshold lies at 2^29, the top bit of the winner's y says whether it is
  reached: one AND per query, to select that bit in the last round.

Both comparisons and the adder are the one-AND gates of Kolesnikov, Sadeghi & Schneider 2009, "Improved garbled circuit
building blocks", figures 2 and 5. A word is an array with its bits on the first axis, lowest first, then classes, then
queries: one call of `conjunction` is one bit of all classes and queries at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from protocols.crypto.field import BITS


@runtime_checkable
class Gates(Protocol):
    """The gates over some kind of wires; the exclusive or of wires is `^` on their arrays."""

    def conjunction(self, left: ndarray, right: ndarray) -> ndarray:
        """left AND right; both broadcast."""

    def negation(self, wires: ndarray) -> ndarray:
        """NOT wires."""


class PlainGates:
    """Gates over booleans, which count the ANDs: the circuit's meaning, for tests and for sizes."""

    def __init__(self) -> None:
        self.conjunctions = 0

    def conjunction(self, left: Bool[ndarray, "..."], right: Bool[ndarray, "..."]) -> Bool[ndarray, "..."]:
        result = left & right
        self.conjunctions += result.size
        return result

    def negation(self, wires: Bool[ndarray, "..."]) -> Bool[ndarray, "..."]:
        return ~wires


@dataclass(frozen=True, eq=False)
class OutcomeWires:
    """Output wires: whether a query passed the threshold (None without one), and the label's bits, lowest first."""

    passed: ndarray | None = field(repr=False)
    label: ndarray = field(repr=False)


def noisy_argmax(gates: Gates, left: ndarray, right: ndarray, *, threshold: bool) -> OutcomeWires:
    """The outcome's wires. left, right: wires of the shares, [BITS, classes, queries]; ties go to the lowest class.

    The label of a query that does not pass is zero.
    """
    top, label = _argmax(gates, _sums(gates, left, right)[1:], with_top=threshold)
    return OutcomeWires(top[0], gates.conjunction(label, top[0])) if threshold else OutcomeWires(None, label)


def conjunctions_a_query(*, classes: int, threshold: bool) -> int:
    """How many AND gates the circuit has for one query."""
    gates = PlainGates()
    wires = np.zeros((BITS, classes, 1), dtype=bool)
    noisy_argmax(gates, wires, wires, threshold=threshold)
    return gates.conjunctions


def _sums(gates: Gates, left: ndarray, right: ndarray) -> ndarray:
    """left + right + 1 modulo 2^BITS."""
    total = left ^ right
    total[0] = gates.negation(total[0])
    # With a carry in of one, the first carry is an OR.
    carry = gates.negation(gates.conjunction(gates.negation(left[0]), gates.negation(right[0])))
    for bit in range(1, BITS):
        total[bit] ^= carry
        if bit < BITS - 1:
            carry = carry ^ gates.conjunction(left[bit] ^ carry, right[bit] ^ carry)
    return total


def _argmax(gates: Gates, values: ndarray, *, with_top: bool) -> tuple[ndarray, ndarray]:
    """The top bit of the largest value, [1, queries] (none, if not with_top), and the bits of its class.

    Neighbours are compared, so ties go to the lower class.

    An entry is a value's bits followed by its class's. After k rounds it stands for 2^k classes; round k decides bit k
    of the winner's class.
    """
    width, entries = len(values), values
    unneeded = width - 1 if with_top else width
    while entries.shape[1] > 1:
        paired = entries.shape[1] // 2 * 2
        left, right = entries[:, 0:paired:2], entries[:, 1:paired:2]
        higher = _greater(gates, right[:width], left[:width])
        if entries.shape[1] == 2:
            # The other bits of the winner's value are not needed.
            left, right = left[unneeded:], right[unneeded:]
        chosen = np.concatenate([left ^ gates.conjunction(left ^ right, higher), higher[None]])
        if paired < entries.shape[1]:
            # An entry without a partner advances, with a zero for this bit.
            alone = np.concatenate([entries[:, paired:], np.zeros_like(entries[:1, paired:])])
            chosen = np.concatenate([chosen, alone], axis=1)
        entries = chosen
    winner = entries[:, 0]
    return winner[: width - unneeded], winner[width - unneeded :]


def _greater(gates: Gates, left: ndarray, right: ndarray) -> ndarray:
    """left > right, of unsigned words."""
    above = left[0] ^ gates.conjunction(left[0], right[0])
    for bit in range(1, len(left)):
        above = left[bit] ^ gates.conjunction(left[bit] ^ above, right[bit] ^ above)
    return above
