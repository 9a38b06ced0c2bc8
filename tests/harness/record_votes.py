"""A small study in which records vote, with its queries and three parties' records."""

from dataclasses import replace

import numpy as np

from party.party import Party
from protocols.features.feature_map import FeatureMap
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.simulated import simulated_level
from protocols.study.levels import Confidentiality
from protocols.study.record_study import RecordVotesPlan, record_study
from protocols.sums.blocks import Blocks, Constant, Kernel, Linear, Nearest, Signs
from protocols.sums.contributions import contribution_sum
from simulations.stages.label import simulated_aggregation

RNG = np.random.default_rng(11)
POINTS = RNG.normal(size=(12, 3)).astype(np.float32)
QUERIES = Blocks(
    FeatureMap((3,)),
    (Nearest.of(POINTS, columns=np.arange(3), nearest=2), Nearest.of(POINTS[:4, :1], columns=np.array([0]))),
)
# Graded features of every kind, with signs.
GRADED = Blocks(
    FeatureMap((3,)),
    (
        Constant(share=4),
        Linear(
            share=60, columns=np.arange(3), scales=np.ones(3), centre=np.array([10, -20, 5]),
            matrix=RNG.integers(-99, 99, (2, 3)),
        ),
        Signs(share=20, columns=np.arange(2), scales=np.ones(2), centre=np.zeros(2, np.int64)),
        Kernel(
            share=10, columns=np.arange(3), scales=np.ones(3), centres=RNG.integers(-999, 999, (4, 3)), width=2**22,
            means=np.full(4, 9000), matrix=RNG.integers(-9, 9, (2, 4)),
        ),
        Nearest.of(POINTS[:3], columns=np.arange(3), share=6),
    ),
)  # fmt: skip
KINDS = {"cells": QUERIES, "graded": GRADED}
# Three parties; the patients of the first two have two records each.
HOLDINGS = [
    (RNG.normal(size=(40, 3)).astype(np.float32), RNG.integers(0, 2, 40), np.arange(40) // 2),
    (RNG.normal(size=(30, 3)).astype(np.float32), RNG.integers(0, 2, 30), np.arange(30) // 2),
    (RNG.normal(size=(9, 3)).astype(np.float32), RNG.integers(0, 2, 9), np.arange(9)),
]


def cell_sum(cells, units, *, weight_units, cell_count):
    """The sum of records that say their cells, of one class."""
    points = np.arange(cell_count, dtype=np.float32)[:, None]
    blocks = Blocks(FeatureMap((1,)), (Nearest.of(points, columns=np.array([0])),))
    return contribution_sum(blocks, cells, units, weight_units=weight_units, classes=1).ravel()


UNITS = 1024
NAMES = ("a", "b", "c")
LEVELS = ("clear", "secure_sum", "two_server")


def study_of(
    level="clear", *, unit="record", rule="exhaustive", epsilon=(1.0, 2.0, 1.0), quorum=3, names=NAMES, colluders=1,
    queries=QUERIES, evaluation=None, residuals=False,
):  # fmt: skip
    """level: a name, for known keys and three parties, or a level of confidentiality itself."""
    if not isinstance(level, Confidentiality):
        level = simulated_level(
            level,
            units=None if level == "clear" else UNITS,
            colluders=colluders if level == "secure_sum" else None,
            seats=3,
        )
    if level.signs:
        level = replace(level, seat_keys=level.seat_keys[: len(names)])
    plan = RecordVotesPlan(
        name="records", classes=2, unit=unit, population=79, queries=queries, rule=rule, level=level, quorum=quorum,
        evaluation=evaluation, residuals=residuals,
    )  # fmt: skip
    return record_study(plan, names=names, epsilon=np.array(epsilon), delta=np.full(3, 1e-5))


def simulated_labelling(study, exchange, *, seed):
    """What the study releases over a transport to its parties, with the noise and the shares of one seed."""
    with Ledger(":memory:") as ledger, Ledger(":memory:") as guardians:
        return labelling_of(study, simulated_aggregation(study, guardians=guardians, seed=seed), exchange, ledger)


def labelling_of(study, aggregation, exchange, ledger):
    """One coordinator's run of the one batch."""
    coordinator = Coordinator(study, ledger=ledger, aggregation=aggregation, exchange=exchange, run=bytes(16))
    return coordinator.label(np.zeros((study.votes.queries, 1), np.float32))


def parties_of(study, sums, ledgers, *, ballot=lambda position, ledger: None):
    """The parties of a study, by name, each of whose records add up to one of the sums."""
    return {
        seat.party: Party(
            seat.party,
            study=study,
            ledger=ledgers[at],
            voter=lambda batch, at=at: sums[at],
            coins_from=None,
            ballot=ballot(at, ledgers[at]),
        )
        for at, seat in enumerate(study.roster)
    }
