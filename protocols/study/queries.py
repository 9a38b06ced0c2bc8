"""A batch of public queries: which of the pool they are, their inputs, and a digest of both."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.ranges import check, check_ascending


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """Queries to every party. `number` counts batches of a study from 0.

    ids: position of each query in the public pool, ascending, see ranges.py; inputs: f32, one row per query, finite;
    model: where judges are asked, the ONNX file of the model that they score; else empty.
    """

    number: int
    ids: Int64[ndarray, " queries"]
    inputs: Float32[ndarray, "rows ..."] = field(repr=False)
    model: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        check("VoteRequest", "number", self.number)
        if len(self.ids) == 0 or len(self.ids) != len(self.inputs):
            raise InvalidInput(
                f"{len(self.ids)} query ids for {len(self.inputs)} inputs; allowed: one each, at least 1"
            )
        check_ascending("VoteRequest", "ids", self.ids)
        if not np.isfinite(self.inputs).all():
            raise InvalidInput("query inputs hold NaN or infinite features; allowed: finite")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of number, ids, shape, the model's SHA-256 if there is one, and inputs, in little-endian bytes."""
        model = f" {hashlib.sha256(self.model).hexdigest()}" if self.model else ""
        header = f"conclave batch 1 {self.number} {self.inputs.shape}{model}\n".encode()
        body = self.ids.astype("<i8").tobytes() + np.ascontiguousarray(self.inputs, dtype="<f4").tobytes()
        return hashlib.sha256(header + body).digest()


def pool_digest(inputs: Float32[ndarray, "queries ..."]) -> str:
    """SHA-256, in hexadecimal digits, of a pool of public queries: its shape and its values in little-endian bytes."""
    header = f"conclave pool 1 {inputs.shape}\n".encode()
    return hashlib.sha256(header + np.ascontiguousarray(inputs, dtype="<f4").tobytes()).hexdigest()


def no_inputs(queries: int) -> Float32[ndarray, "queries 0"]:
    """The inputs of a batch in which records vote: only their number, as every party has the file of the queries."""
    return np.zeros((queries, 0), dtype=np.float32)
