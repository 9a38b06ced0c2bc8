"""The sizes of a private inference's messages, checked against the hub's limits before anything is computed."""

from __future__ import annotations

from math import prod

import numpy as np

from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.architecture import Architecture
from protocols.levels.hidden_queries.inference.material import Piece
from protocols.levels.hidden_queries.inference.plan import InferencePlan
from protocols.wire.sizes import REQUEST_BYTES

# A hub accepts and relays no larger frame: it holds several in memory at once.
REPLY_BYTES = 7 * 2**20


def check_sizes(architecture: Architecture, queries: int) -> None:
    """Raises InvalidInput unless all messages of a batch of `queries` queries are within the limits."""
    plan = InferencePlan.of(architecture, queries)
    reply = max(_bytes(exchange.reply) for exchange in plan.exchanges)
    request = max(_bytes(plan.corrections), *(_bytes(exchange.request) for exchange in plan.exchanges))
    for what, size, limit in (
        ("a reply of the answering party", reply, REPLY_BYTES),
        ("a message to the answering party", request, REQUEST_BYTES),
    ):
        if size > limit:
            raise InvalidInput(
                f"{what} about {queries} queries has {size} bytes; allowed: {limit}: use a smaller model, or a study "
                "with a lower batch_limit"
            )


def _bytes(pieces: tuple[Piece, ...]) -> int:
    return sum(prod(piece.shape) * np.dtype(piece.dtype).itemsize for piece in pieces)
