"""The guardian as dealer: correlated randomness for one batch and one answering party, from two fresh seeds.

It needs the architecture and the number of queries, and sees no input, weight or message of the computation.
"""

from __future__ import annotations

import numpy as np

from protocols.crypto.prg_aes import SEED_BYTES, Stream
from protocols.crypto.randomness import RandomSource
from protocols.levels.hidden_queries.inference.architecture import Architecture, PoolShape
from protocols.levels.hidden_queries.inference.material import Arrays, Piece, corrections, drawn, joined
from protocols.levels.hidden_queries.inference.plan import InferencePlan, LinearGate
from protocols.levels.hidden_queries.inference.ring import by_uniform
from protocols.levels.hidden_queries.inference.vote import keyed_masks, keyed_seed


def deal(architecture: Architecture, queries: int, *, source: RandomSource) -> tuple[Arrays, Arrays]:
    """The randomness for one batch: (the querying party's seed, the answering party's seed and corrections).

    Raises InvalidInput for a number of queries outside the limits.
    """
    plan = InferencePlan.of(architecture, queries)
    seeds = source(SEED_BYTES), source(SEED_BYTES)
    asking, answering = (Stream(seed) for seed in seeds)
    sent: list[np.ndarray] = []
    for step in (*plan.steps, plan.vote):
        if isinstance(step, PoolShape):
            continue
        if isinstance(step, LinearGate):
            pieces: tuple[Piece, ...] = (step.result,)
            (weight_mask,), (value_mask,) = drawn(answering, (step.weights,)), drawn(asking, (step.values,))
            secrets: Arrays = (step.applied(value_mask, by_uniform(weight_mask)),)
        else:
            pieces = step.derived
            secrets = step.secrets(joined(step.free, drawn(asking, step.free), drawn(answering, step.free)))
        own = drawn(asking, pieces)
        sent += corrections(pieces, secrets, own)
    # The last that was drawn for the querying party is its share of the table of votes.
    gate, masks = plan.vote, keyed_masks(keyed_seed(seeds[0]), plan.vote.keyed.shape)
    sent += corrections((gate.keyed,), (gate.keyed_secret(own[-1], seeds[1]),), (masks,))
    first, second = (np.frombuffer(seed, dtype=np.uint8) for seed in seeds)
    return (first,), (second, *sent)
