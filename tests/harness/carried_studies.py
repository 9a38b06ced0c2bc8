"""What one run of an engine carries: studies of every level of confidentiality, votes that teachers cast, and echoes.

All in one run of the engine, as starting it takes up to ten seconds.
"""

from functools import partial

import numpy as np
import psutil
import pytest

from coordinator.queries.choice import cluster_queries
from coordinator.queries.features import features_for
from protocols.errors import EngineFailed
from protocols.ledger.ledger import Ledger
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.two_server.aggregation import SharedAggregation
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from simulations.engines import open_engine
from simulations.setup.partition import parse_partition, partition, teacher_shards
from simulations.stages.cast import cast_votes
from simulations.stages.record_cells import find_cells
from simulations.stages.record_votes import contributions
from tests.contract.test_level_contract import Opened, TotalNoise, labelled
from tests.harness import transport_contract
from tests.harness.echo_observed import ECHO, PARTIES, die, observe, printed
from tests.harness.levels import SEAT_KEYS, GuardianHere, lattice_study, secure_sum, two_server
from tests.harness.party_host import SEED, EngineTransport, party_host
from tests.harness.record_votes import HOLDINGS, KINDS, LEVELS, simulated_labelling, study_of
from tests.harness.seeded import seeded_source
from tests.harness.several_hosts import HOST, WithinRun
from tests.harness.studies import make_votes

VOTES, _ = make_votes(6, 40)
ONE_DRAW = {"mechanism": "thresholded_gnmax", "sigma_threshold": None, "threshold": 5.0}
SHARED, MASKED = lattice_study(two_server(), classes=10, **ONE_DRAW), lattice_study(secure_sum(), classes=10)
NAMES = [seat.party for seat in SHARED.roster]
# At every level, of cells and of graded features.
RECORDS = {
    (level, kind): study_of(level, names=tuple(NAMES[:3]), queries=KINDS[kind]) for level in LEVELS for kind in KINDS
}
SUMS = {case: np.stack(contributions(study, KINDS[case[1]], HOLDINGS)) for case, study in RECORDS.items()}


CASTING, TEACHERS = 6, 2
# Everybody of the run.
ALL = [*NAMES, *map(str, range(CASTING)), *PARTIES]


def cast_digits(folder, engine):
    """The votes of 6 parties' teachers on scikit-learn's digits, and what their records say, by the engine that the
    function opens."""
    dataset = datasets.load("digits", DatasetRequest(seed=0))
    holdings = partition(dataset, parties=CASTING, scheme=parse_partition("iid"), seed=0)
    here = {"engine": engine, "cache_dir": folder, "on_stage": lambda name, done, total: None}
    shards = [teacher_shards(records, None, teachers=TEACHERS, seed=0) for records in holdings]
    pool = dataset.public_inputs
    queries = cluster_queries(pool, features_for(pool, "raw", seed=0), queries=20, seed=0)
    cast = cast_votes(dataset, shards, teacher="logistic_regression", seed=0, **here)
    return cast, np.concatenate(find_cells(dataset, holdings, queries, **here))


def carried_by(engine, folder):
    """What each study released, and the noise of those in which teachers vote.

    "contract": what the contract of transports asks for; "shares", "masked": labellings of teachers' votes, with
    "total" and "opened", their noise; a labelling of records' votes for each level and kind of features; "cast" and
    "cells", what teachers and records said in its workers; and "echo", the observations of the engine contract, with a
    worker's "death", the processes that it "left", what was "printed", and the "log".
    """
    seen, log = {}, folder / "engine.log"
    host = party_host(folder, transport_contract.STUDY, transport_contract.VOTES)
    party_host(folder, SHARED, VOTES, keys=SEAT_KEYS)
    party_host(folder, MASKED, VOTES, keys=SEAT_KEYS)
    for case, study in RECORDS.items():
        party_host(folder, study, SUMS[case])

    def labellings(exchange):
        carry = EngineTransport(exchange)
        seen["contract"] = transport_contract.exercise(carry)
        with pytest.MonkeyPatch.context() as patched, Ledger(":memory:") as guardians:
            seen["total"], seen["opened"] = TotalNoise(patched, SHARED), Opened(patched)
            here = GuardianHere(SHARED, guardians, seeded_source(5))
            shares = SharedAggregation(here.dial, source=seeded_source(6))
            seen["shares"], _ = labelled(SHARED, VOTES, shares, wrap=lambda _: carry)
            seen["masked"], _ = labelled(MASKED, VOTES, SummedAggregation(), wrap=lambda _: carry)
        for case, study in RECORDS.items():
            seen[case] = simulated_labelling(study, carry, seed=SEED)

    def body(exchange):
        within = WithinRun(exchange)
        within.run(host, NAMES, labellings)
        seen["cast"], seen["cells"] = cast_digits(folder / "cast", lambda: within)
        # What a host of Flower prints does not reach the person.
        bug = b"bug:printed by a host" if engine == "flower" else b"bug"
        seen["echo"] = within.run(ECHO, PARTIES, partial(observe, bug=bug))
        within.run(ECHO, PARTIES, die)

    if engine == "flower":
        from simulations.engines.flower import Flower  # takes seconds, which every worker would pay

        started = Flower(workers=2, log=log)
    else:
        started = open_engine(engine, workers=2)
    before = psutil.Process().children(recursive=True)
    with printed(folder / "printed") as found, pytest.raises(EngineFailed) as death:
        started.run(HOST, ALL, body)
    left = set(psutil.Process().children(recursive=True)) - set(before)
    seen["echo"] |= {"death": str(death.value), "left": left, "printed": found}
    seen["echo"] |= {"log": log.read_text(encoding="utf-8") if log.exists() else None}
    return seen
