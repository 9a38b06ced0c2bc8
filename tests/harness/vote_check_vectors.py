"""Makes tests/vectors/vote_check.json with the code under test: python tests/harness/vote_check_vectors.py."""

import json
from pathlib import Path

import numpy as np

from protocols.crypto.channel import pair
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare, share_votes
from protocols.levels.two_server.sketch import Ballots, coordinator_checks, guardian_checks
from tests.harness.kept_messages import Sent
from tests.harness.seeded import seeded_source
from tests.harness.two_server_sides import converse

FILE = Path(__file__).parent.parent / "vectors" / "vote_check.json"

# Of each case: classes, votes (-1 for none), whether abstention is allowed, who takes part (None: everybody), and what
# is altered: (array of the coordinator's share, flat position in it), to which 1 is added.
CASES = {
    "one vote": (2, [[1]], False, None, []),
    "three voters": (3, [[0, 2], [1, 1], [2, 0]], False, None, []),
    "abstentions are allowed": (3, [[-1, 2], [-1, -1]], True, None, []),
    "an abstention that is not allowed": (3, [[-1, 2], [0, 1]], False, None, []),
    "some take no part": (3, [[0, -1, 2], [1, 1, 1]], False, [[1, 0, 1], [1, 1, 0]], []),
    "a vector that is not one-hot": (3, [[0, 2], [1, 1], [2, 0]], False, None, [("votes", 1)]),
    "a product with another key": (3, [[0, 2], [1, 1]], True, None, [("keyed", 20)]),
    "another constant": (3, [[0, 2], [1, 1]], True, None, [("constants", 7)]),
    "another product of the factors": (3, [[0, 2], [1, 1]], True, None, [("products", 0)]),
}


def made(number: int, name: str) -> dict[str, object]:
    """One case: what goes in, and what the code gives."""
    classes, votes, abstention, takes_part, altered = CASES[name]
    takes_part = np.ones(np.shape(votes), dtype=bool) if takes_part is None else np.array(takes_part, dtype=bool)
    context = bytes([number]) * 32
    shares = share_votes(np.array(votes), classes=classes, context=context, source=seeded_source(number))
    for array, at in altered:
        getattr(shares[0], array).flat[at] += 1
    secrets = seeded_source(number, 1)(32), seeded_source(number, 2)(32)
    messages, valid = conversation(*shares, Ballots(takes_part, classes, abstention, context), secrets)
    return {
        "name": name,
        "context": context.hex(),
        "classes": classes,
        "abstention": abstention,
        "takes_part": takes_part.astype(int).tolist(),
        "votes": votes,
        "guardian_seeds": [seed.tobytes().hex() for seed in shares[1].seeds],
        "coordinator_seeds": [seed.tobytes().hex() for seed in shares[0].seeds],
        "altered": [list(each) for each in altered],
        "coordinator_share": {
            name: getattr(shares[0], name).astype("<u4").tobytes().hex()
            for name in ("votes", "keyed", "constants", "products")
        },
        "secrets": [secret.hex() for secret in secrets],
        "messages": [message.hex() for message in messages],
        "valid": valid.tolist(),
    }


def conversation(
    coordinator: CoordinatorShare, guardian: GuardianShare, ballots: Ballots, secrets: tuple[bytes, bytes]
) -> tuple[list[bytes], np.ndarray]:
    """All messages in order, and the verdict that both servers have."""
    messages: list[bytes] = []
    ends = tuple(Sent(end, messages) for end in pair())
    found = converse(
        lambda channel: coordinator_checks(channel, coordinator, ballots, secret=secrets[0], pin=lambda *_: None),
        lambda channel: guardian_checks(channel, guardian, ballots, secret=secrets[1], pin=lambda *_: None),
        channels=ends,
    )
    np.testing.assert_array_equal(*found)
    return messages, found[0]


def vectors() -> list[dict[str, object]]:
    """All cases."""
    return [made(number, name) for number, name in enumerate(CASES)]


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n")
