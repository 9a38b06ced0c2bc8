"""What the two servers put into the circuit of a batch, and the sizes on which they must agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int64, UInt32
from numpy import ndarray

from protocols.crypto.circuit import ThresholdTest, conjunctions_a_query
from protocols.crypto.counting_ring import LIMIT
from protocols.crypto.field import BITS, P, from_integers, plus
from protocols.crypto.prg_chacha import derived_key
from protocols.errors import InvalidInput

# Classes times queries of a chunk: about 60 MB of labels.
_CHUNK_CELLS = 16_384


class Sizes:
    """The sizes that both servers must agree on, and what follows from them.

    masked: whether the coordinator hides the label from the guardian (hidden queries).
    """

    def __init__(self, *, queries: int, classes: int, test: ThresholdTest, masked: bool) -> None:
        if classes < 2:
            raise InvalidInput(f"classes = {classes}; allowed: 2 or more")
        self.queries, self.classes, self.test, self.masked = queries, classes, test, masked
        self.conjunctions = conjunctions_a_query(classes=classes, test=test)
        self.label_bits = (classes - 1).bit_length()
        self.outputs = self.label_bits + (test is not ThresholdTest.NONE)
        self.digest = derived_key("noisy argmax", np.array([queries, classes, test, masked], dtype="<i8").tobytes())

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
    """One server's numbers: of the threshold, then, doubled, of the argmax."""

    sizes: Sizes
    numbers: UInt32[ndarray, "rows queries"] = field(repr=False)

    def bits(self, at: slice) -> Bool[ndarray, "31 rows queries"]:
        """The numbers' bits, lowest first, of a chunk of queries."""
        shifts = np.arange(BITS, dtype=np.uint32)[:, None, None]
        return ((self.numbers[:, at] >> shifts) & np.uint32(1)).astype(np.bool_)


def coordinator_inputs(
    share: UInt32[ndarray, "queries classes"],
    *,
    label_noise: Int64[ndarray, "queries classes"],
    threshold_noise: Int64[ndarray, " queries"] | None,
    threshold: int | None,
    offsets: Int64[ndarray, "queries classes"] | None,
    total_units: int,
    masked: bool,
) -> CircuitInputs:
    """The coordinator's inputs. masked: whether it hides labels from the guardian.

    share: of the counts in units; label_noise: this server's full noise in units; threshold: T S, or None for plain
    GNMax, where every query passes; threshold_noise: this server's full noise for the threshold in units, or None if
    the noisy counts whose argmax is taken are compared with it; offsets: what an interactive mechanism subtracts from
    each count before a threshold with noise of its own, which only the coordinator needs to know; total_units: as given
    to `check_ring`, which must have passed. Raises InvalidInput.
    """
    test = _test(threshold is not None, threshold_noise)
    if offsets is not None and test is not ThresholdTest.APART:
        raise InvalidInput("offsets without a threshold's noise; allowed: offsets None, or a threshold with noise")
    if not 0 <= total_units < LIMIT:
        raise InvalidInput(f"total_units = {total_units}; allowed: 0 to {LIMIT - 1}")
    # Centred, so that counts with noise lie in [0, 2^30) modulo p; a winner that is tested, so that T S is at 2^29.
    centre = threshold if threshold is not None and threshold_noise is None else total_units // 2
    needed = np.zeros(share.shape, dtype=np.int64) if offsets is None else offsets
    above = None if threshold is None or threshold_noise is None else _above(share, threshold_noise, needed + threshold)
    return _inputs(share, label_noise, centre - 2**29, above, test=test, masked=masked)


def guardian_inputs(
    share: UInt32[ndarray, "queries classes"],
    *,
    label_noise: Int64[ndarray, "queries classes"],
    threshold_noise: Int64[ndarray, " queries"] | None,
    threshold: bool,
    masked: bool,
) -> CircuitInputs:
    """As `coordinator_inputs`, for the guardian."""
    test, nothing = _test(threshold, threshold_noise), np.zeros(share.shape, dtype=np.int64)
    above = _above(share, threshold_noise, nothing) if threshold and threshold_noise is not None else None
    return _inputs(share, label_noise, 0, above, test=test, masked=masked)


def _test(threshold: bool, threshold_noise: Int64[ndarray, " queries"] | None) -> ThresholdTest:
    """What a study's threshold is compared with. threshold: whether there is one."""
    if not threshold:
        return ThresholdTest.NONE
    return ThresholdTest.WINNER if threshold_noise is None else ThresholdTest.APART


def _inputs(
    share: UInt32[ndarray, "queries classes"],
    label_noise: Int64[ndarray, "queries classes"],
    lowest: int,
    above: UInt32[ndarray, "queries classes"] | None,
    *,
    test: ThresholdTest,
    masked: bool,
) -> CircuitInputs:
    if share.size and int(share.max()) >= P:
        raise InvalidInput(f"a share holds {P} or more; allowed: below {P}")
    if label_noise.shape != share.shape:
        raise InvalidInput(f"label noise of shape {label_noise.shape}; expected: {share.shape}")
    noisy = plus(share, from_integers(label_noise - lowest))
    doubled = plus(noisy, noisy).T
    queries, classes = share.shape
    sizes = Sizes(queries=queries, classes=classes, test=test, masked=masked)
    return CircuitInputs(sizes, doubled if above is None else np.concatenate([above.T, doubled]))


def _above(
    share: UInt32[ndarray, "queries classes"],
    threshold_noise: Int64[ndarray, " queries"],
    needed: Int64[ndarray, "queries classes"],
) -> UInt32[ndarray, "queries classes"]:
    """A server's shares of how far counts with the threshold's noise exceed what is needed."""
    if threshold_noise.shape != share.shape[:1] or needed.shape != share.shape:
        raise InvalidInput(f"a threshold needs noise for {len(share)} queries and offsets of shape {share.shape}")
    return plus(share, from_integers(threshold_noise[:, None] - needed))
