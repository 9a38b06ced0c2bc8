"""What comes out of private inference is what the two servers take from voters: their check passes, and their sums."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from protocols.crypto.channel import pair
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.model import quantise
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare
from protocols.levels.two_server.sketch import Ballots, coordinator_checks, guardian_checks
from tests.harness.inference_parties import CONTEXT, linear_model, mlp, parties, run
from tests.harness.seeded import seeded_source


def test_the_querying_party_and_the_guardian_check_the_votes_of_heterogeneous_models_as_those_of_voters() -> None:
    rng = np.random.default_rng(1)
    inputs = rng.uniform(-1, 1, (5, 6))
    both = [
        parties(quantise(build(rng), Precision()), inputs, key) for key, build in enumerate((linear_model, mlp, mlp))
    ]
    for querier, answerer in both:
        run(querier, answerer)
    coordinators = CoordinatorShare.of_all([querier.share for querier, _ in both])
    guardians = GuardianShare.of_all([answerer.guardian_share for _, answerer in both])
    # The second voter's share is changed on its way, so that its vector is no longer one-hot.
    coordinators.votes[1, 2, 3] ^= 1
    ballots = Ballots(np.ones((3, 5), dtype=bool), 4, False, CONTEXT)
    ours, theirs = pair(wait_s=300.0)
    with ThreadPoolExecutor(1) as pool:
        guardians_side = pool.submit(
            guardian_checks, theirs, guardians, ballots, secret=bytes(32), pin=lambda step, value: None
        )
        mine = coordinator_checks(
            ours, coordinators, ballots, secret=seeded_source(2)(32), pin=lambda step, value: None
        )
        assert mine.tolist() == guardians_side.result().tolist() == [True, False, True]
