"""What the two servers put into the circuit of a batch, and the sizes on which they must agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, UInt32
from numpy import ndarray

from protocols.crypto.circuit import conjunctions_a_query
from protocols.crypto.counting_ring import LIMIT
from protocols.crypto.field import BITS, from_integers, plus, times
from protocols.crypto.prg_chacha import derived_key
from protocols.errors import InvalidInput
from protocols.levels.two_server.input_check import Bound

# Classes times queries of a chunk: about 60 MB of labels.
_CHUNK_CELLS = 16_384


class Sizes:
    """The sizes that both servers must agree on, and what follows from them.

    threshold: whether a query passes only if its winner reaches one; masked: whether the coordinator hides the label
    from the guardian (hidden queries).
    """

    def __init__(self, *, queries: int, classes: int, threshold: bool, masked: bool) -> None:
        if classes < 2:
            raise InvalidInput(f"classes = {classes}; allowed: 2 or more")
        self.queries, self.classes, self.threshold, self.masked = queries, classes, threshold, masked
        self.conjunctions = conjunctions_a_query(classes=classes, threshold=threshold)
        self.label_bits = (classes - 1).bit_length()
        self.outputs = self.label_bits + threshold
        self.digest = derived_key(
            "noisy argmax", np.array([queries, classes, threshold, masked], dtype="<i8").tobytes()
        )

    def chunks(self) -> Iterator[slice]:
        step = max(1, _CHUNK_CELLS // self.classes)
        for start in range(0, self.queries, step):
            yield slice(start, min(start + step, self.queries))

    @property
    def mask_bytes(self) -> int:
        """The size of the masks of all outputs."""
        return (self.outputs * self.queries + 7) // 8


@dataclass(frozen=True, eq=False)
class CircuitInputs:
    """One server's numbers, doubled for the argmax, and what binds both servers' numbers.

    macs: of its own numbers; alphas, keys: of the other's: key = alpha number + mac (input_check.py).
    """

    sizes: Sizes
    numbers: UInt32[ndarray, "classes queries"] = field(repr=False)
    macs: UInt32[ndarray, "repetitions classes queries"] = field(repr=False)
    alphas: UInt32[ndarray, " repetitions"] = field(repr=False)
    keys: UInt32[ndarray, "repetitions classes queries"] = field(repr=False)

    def bits(self, at: slice) -> Bool[ndarray, "31 classes queries"]:
        """The numbers' bits, lowest first, of a chunk of queries."""
        shifts = np.arange(BITS, dtype=np.uint32)[:, None, None]
        return ((self.numbers[:, at] >> shifts) & np.uint32(1)).astype(np.bool_)


def circuit_inputs(
    bound: Bound, *, leads: bool, threshold: int | None, total_units: int, masked: bool
) -> CircuitInputs:
    """A server's inputs. leads: whether it is the coordinator; masked: whether that hides labels from the guardian.

    bound: its shares of the counts in units with its noise; threshold: T S, which the noisy counts whose argmax is
    taken must reach, or None for plain GNMax, where every query passes; total_units: as given to `check_ring`, which
    must have passed. Raises InvalidInput.
    """
    if not 0 <= total_units < LIMIT:
        raise InvalidInput(f"total_units = {total_units}; allowed: 0 to {LIMIT - 1}")
    # Centred by the coordinator, so that counts with noise lie in [0, 2^30) modulo p, and a threshold at 2^29.
    centre = total_units // 2 if threshold is None else threshold
    added = from_integers(np.array([2 * (2**29 - centre)]))
    numbers, macs, keys = (plus(each, each) for each in (bound.numbers, bound.macs, bound.keys))
    if leads:
        numbers = plus(numbers, added)
    else:
        keys = plus(keys, times(bound.alphas, added)[:, None, None])
    queries, classes = numbers.shape
    sizes = Sizes(queries=queries, classes=classes, threshold=threshold is not None, masked=masked)
    by_class = (each.transpose(0, 2, 1) for each in (macs, keys))
    return CircuitInputs(sizes, numbers.T, next(by_class), bound.alphas, next(by_class))
