"""Makes tests/vectors/input_check.json with the code under test: python tests/harness/input_check_vectors.py."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np

from protocols.crypto.channel import pair
from protocols.levels.two_server.circuit_inputs import InputCheck
from protocols.levels.two_server.keyed_shares import KeyedShares
from protocols.levels.two_server.noise_pool import NoiseLaw
from protocols.levels.two_server.one_time_masks import PinnedExchange, masks_hold
from protocols.levels.two_server.shares import share_votes
from protocols.levels.two_server.sketch import Ballots
from tests.harness.kept_messages import Sent
from tests.harness.seeded import seeded_source
from tests.harness.two_server_sides import converse

FILE = Path(__file__).parent.parent / "vectors" / "input_check.json"

# Of each case: votes, the weight of each vote (0 where it does not count), sigma, and whose masks are spoilt.
CASES = {
    "two voters": ([[1], [0]], [[64], [70]], 5, None),
    "one vote does not count": ([[1, 0], [2, 2]], [[3, 0], [5, 5]], 2, None),
    "a voter's masks are spoilt": ([[1], [0], [1]], [[1], [0], [1]], 3, 1),
}


def made(number: int, name: str) -> dict[str, object]:
    """One case: what goes in, and what the code gives."""
    votes, weights, sigma, spoilt = CASES[name]
    counted, classes = np.array(weights), 3
    context = bytes([number]) * 32
    coordinator, guardian = share_votes(
        np.array(votes), classes=classes, context=context, source=seeded_source(number, 3)
    )
    if spoilt is not None:
        coordinator.masks[spoilt, 0, 1, 0] += 1
    ballots = Ballots(np.ones(counted.shape, dtype=bool), classes, False, context)
    keyed = KeyedShares.of_coordinator(coordinator, ballots), KeyedShares.of_guardian(guardian, ballots)
    secrets, seeds = ([seeded_source(number, what, at)(32) for at in range(2)] for what in (4, 5))
    law, said = NoiseLaw(Fraction(sigma), classes), ([], [])

    def side(at):
        def run(channel):
            exchange = PinnedExchange(channel, leads=at == 0, pin=lambda *_: None)
            shares = keyed[at]
            valid = masks_hold(exchange, shares.masks, shares.keys, secret=secrets[at], digest=ballots.digest)
            check = InputCheck(shares, counted, law, seed=seeds[at], digest=ballots.digest)
            return valid, check.run(exchange)

        return run

    ends = tuple(Sent(end, kept) for end, kept in zip(pair(wait_s=300.0), said, strict=True))
    (valid, *_), (also, *_) = found = converse(side(0), side(1), channels=ends)
    np.testing.assert_array_equal(valid, also)
    return {
        "name": name,
        "context": context.hex(),
        "votes": votes,
        "classes": classes,
        "weights": weights,
        "sigma": sigma,
        "guardian_seeds": [seed.tobytes().hex() for seed in guardian.seeds],
        "coordinator_seeds": [seed.tobytes().hex() for seed in coordinator.seeds],
        "masks": coordinator.masks.astype("<u4").tobytes().hex(),
        "secrets": [each.hex() for each in secrets],
        "noise_seeds": [each.hex() for each in seeds],
        "valid": valid.tolist(),
        "messages": [[each.hex() for each in kept] for kept in said],
        "bound": [
            {
                "numbers": each.numbers.tolist(), "macs": each.macs.tolist(), "alphas": each.alphas.tolist(),
                "keys": each.keys.tolist(),
            }
            for _, each in found
        ],
    }  # fmt: skip


def vectors() -> list[dict[str, object]]:
    """All cases."""
    return [made(number, name) for number, name in enumerate(CASES)]


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n")
