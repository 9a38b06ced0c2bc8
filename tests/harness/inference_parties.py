"""Models, and one batch between a dealer, a querying and an answering party, for tests."""

import numpy as np

from protocols.crypto.field import P
from protocols.levels.hidden_queries.inference.computing import Answerer, Querier, deal
from protocols.levels.hidden_queries.inference.model import AveragePool, Convolution, Dense, Model, QuantisedModel, ReLU
from protocols.levels.two_server.shares import guardian_blinds, guardian_determined, guardian_votes
from tests.harness.seeded import seeded_source

CONTEXT = b"a batch"


def dense(rng, inputs, outputs):
    return Dense(rng.normal(size=(outputs, inputs)) / np.sqrt(inputs), rng.normal(size=outputs) / 50)


def convolution(rng, channels, filters, kernel, **how):
    kernels = rng.normal(size=(filters, channels, kernel, kernel)) / (kernel * np.sqrt(channels))
    return Convolution(kernels, rng.normal(size=filters) / 50, **how)


def linear_model(rng, features=6, classes=4):
    return Model((features,), (dense(rng, features, classes),))


def mlp(rng, features=6, hidden=5, classes=4):
    return Model((features,), (dense(rng, features, hidden), ReLU(), dense(rng, hidden, classes)))


def cnn(rng, side=8, classes=3):
    return Model(
        (side, side),
        (
            convolution(rng, 1, 4, 3, stride=2, padding="same"), ReLU(), AveragePool(2),
            convolution(rng, 4, 5, 2), ReLU(), dense(rng, 5 * (side // 4 - 1) ** 2, classes),
        ),
    )  # fmt: skip


def parties(model: QuantisedModel, inputs, *key):
    """(querier, answerer) with dealt randomness."""
    for_querier, for_answerer = deal(model.architecture, len(inputs), source=seeded_source(*key, 1))
    answerer = Answerer(model, len(inputs), for_answerer, context=CONTEXT, source=seeded_source(*key, 2))
    return Querier(model.architecture, inputs, for_querier), answerer


def run(querier, answerer):
    """All messages, (name, request, reply) each."""
    transcript, request = [], querier.start()
    while request is not None:
        reply = answerer.step(*request)
        transcript.append((*request, reply))
        request = querier.step(reply)
    return transcript


def votes(querier, answerer):
    """What both shares make together: one row per query, over F_p."""
    return (querier.share.votes[0].astype(np.int64) + guardians(answerer, len(querier.share.votes[0]))[0]) % P


def guardians(answerer, queries):
    """What the guardian expands of the one voter: shares of votes, what follows from them, what is uniform."""
    seeds = answerer.guardian_share.seeds
    classes = answerer._plan.vote.classes
    determined = guardian_determined(seeds, queries=queries, classes=classes, context=CONTEXT)
    blinds = guardian_blinds(seeds, queries=queries, context=CONTEXT)
    votes = guardian_votes(seeds, queries=queries, classes=classes, context=CONTEXT)
    return votes[0], determined, blinds


def private_votes(model, inputs, *key):
    querier, answerer = parties(model, inputs, *key)
    run(querier, answerer)
    return votes(querier, answerer)
