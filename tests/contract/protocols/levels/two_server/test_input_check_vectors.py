"""The vectors of docs/explanation/input-check.md: the code makes them, and what one computes from the page fits.

Recomputed here in Python's integers: masks and their test, coins, all noise, what is opened, both tests, what is bound.
"""

import hashlib
import json

import mpmath
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from tests.harness.input_check_vectors import CASES, FILE, vectors
from tests.harness.vote_check_slow import (
    H,
    P,
    added,
    blinds,
    coordinator_share,
    data,
    expand,
    flat,
    guardian_share,
    shaped,
)

STORED = json.loads(FILE.read_text())
J = 2
STEPS = ("mask number", "masks", "mask results promised", "mask results", "promise", "number", "entered")
LATER = ("second number", "opened", "input results promised", "input results")


def test_the_code_gives_the_vectors() -> None:
    assert vectors() == STORED
    assert [case["name"] for case in STORED] == list(CASES)


def masks_of(case, server, seed, parts):
    numbers = iter(
        expand(H(f"{server}'s masks", bytes.fromhex(case["context"]), seed), parts * 2 * J * case["queries"])
    )
    return shaped(numbers, parts, 2, J, case["queries"])


def shares_of(case):
    """Of coordinator and guardian, of each voter: v, u, k, (z, y), (e, h)."""
    context, sides = bytes.fromhex(case["context"]), ([], [])
    numbers = iter(
        int.from_bytes(bytes.fromhex(case["masks"])[at : at + 4], "little")
        for at in range(0, len(case["masks"]) // 2, 4)
    )
    sent = shaped(numbers, len(case["votes"]), 2, J, case["queries"])
    for voter, votes in enumerate(case["votes"]):
        g, c = (bytes.fromhex(case[f"{name}_seeds"][voter]) for name in ("guardian", "coordinator"))
        v, u, *_ = coordinator_share(context, g, c, votes, case["classes"])
        a, slopes, *_ = blinds("coordinator", context, c, case["queries"])
        sides[0].append((v, u, added(slopes, added(a, a)), masks_of(case, "coordinator", c, 1)[0], sent[voter]))
        v, u, _, _, a, slopes, *_ = guardian_share(context, g, case["queries"], case["classes"])
        sides[1].append((v, u, added(slopes, added(a, a)), *masks_of(case, "guardian", g, 2)))
    return sides


def least(u, sigma):
    """The least z with u < F(z) 2^128, the law cut at 13 sigma."""
    with mpmath.workdps(60):
        weights = {z: mpmath.exp(-mpmath.mpf(z * z) / (2 * sigma**2)) for z in range(-13 * sigma, 13 * sigma + 1)}
        total, running = mpmath.fsum(weights.values()), mpmath.mpf(0)
        for z, weight in weights.items():
            running += weight
            if u < running / total * 2**128:
                return z
    return 13 * sigma


def rows_of(case, seed, coin):
    """All rows of a server's noise, and their seeds."""
    key = H("noise rows", seed)
    stream = expand_bytes(key, 16 * 4 * case["queries"])
    seeds = [stream[at : at + 16] for at in range(0, len(stream), 16)]
    rows = []
    for number, each in enumerate(seeds):
        row = number.to_bytes(4, "little") + each
        octets = hashlib.shake_256(b"conclave noise row" + coin + row).digest(16 * case["classes"])
        words = [int.from_bytes(octets[at : at + 8], "little") for at in range(0, len(octets), 8)]
        rows.append([least((words[2 * at] << 64) + words[2 * at + 1], case["sigma"]) for at in range(case["classes"])])
    return rows, seeds


def expand_bytes(key, count):
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(count))


@pytest.mark.parametrize("case", STORED, ids=[case["name"] for case in STORED])
def test_what_the_page_says_gives_what_both_servers_opened_and_bound(case) -> None:
    voters, queries, classes = len(case["votes"]), len(case["votes"][0]), case["classes"]
    case = case | {"queries": queries}
    context = bytes.fromhex(case["context"])
    sizes = b"".join(each.to_bytes(8, "little") for each in (voters, queries, classes, 0))
    bits = "1" * (voters * queries)
    packed = int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")
    digest = H("ballots", sizes, packed, context)
    said = [dict(zip((*STEPS, *LATER), map(bytes.fromhex, each), strict=True)) for each in case["messages"]]
    sides = shares_of(case)

    # Masks.
    secrets = [bytes.fromhex(each) for each in case["secrets"]]
    numbers = [H("mask number", secret, digest) for secret in secrets]
    assert numbers == [each["mask number"] for each in said]
    gamma, rho = shaped(iter(expand(H("masks tested", digest, *numbers), 2 * J * queries)), 2, J, queries)
    opened = []
    for side, each in zip(sides, said, strict=True):
        own = [
            [[(gamma[j][q] * z[j][q] + y[j][q]) % P for q in range(queries)] for j in range(J)]
            for *_, (z, y), _ in side
        ]
        assert data(own) == each["masks"]
        opened.append(own)
    total = added(*opened)
    results = [
        [
            [
                sum(rho[j][q] * (gamma[j][q] * e[j][q] + h[j][q] - total[i][j][q] * k[j][q]) for q in range(queries))
                % P
                for j in range(J)
            ]
            for i, (_, _, k, _, (e, h)) in enumerate(side)
        ]
        for side in sides
    ]
    for at, (own, each) in enumerate(zip(results, said, strict=True)):
        salt = H("salt", secrets[at], b"mask results", digest)
        assert each["mask results"] == data(own) + salt
        promise = H("promised", b"mask results", bytes([1 - at]), digest, salt, data(own))
        assert each["mask results promised"] == promise
    assert case["valid"] == [not any(each) for each in added(*results)]

    # Coins and noise.
    weights = case["weights"]
    seeds = [bytes.fromhex(each) for each in case["noise_seeds"]]
    inputs = H("inputs", digest, b"".join(each.to_bytes(8, "little") for each in flat(weights)))
    coins = []
    for at, name in enumerate(("first", "second")):
        numbers = [H(f"{name} coin of noise", seed) for seed in seeds]
        assert numbers == [each[("number", "second number")[at]][:32] for each in said]
        for server, each in enumerate(said):
            promised = H("number promised", bytes([1 - server, at]), inputs, numbers[server])
            assert each["promise"][32 * (1 + at) :][:32] == promised
        coins.append(H("coin of noise", *numbers))
    pools = [rows_of(case, seed, coins[0]) for seed in seeds]
    words = expand_bytes(H("order of rows", coins[1]), 8 * 4 * queries)
    order = sorted(range(4 * queries), key=lambda row: int.from_bytes(words[8 * row : 8 * row + 8], "little"))
    for each, (_, row_seeds) in zip(said, pools, strict=True):
        leaves = [
            hashlib.sha256(b"conclave noise seed" + number.to_bytes(4, "little") + one).digest()
            for number, one in enumerate(row_seeds)
        ]
        assert each["promise"][:32] == inputs
        assert each["promise"][96:128] == H("noise pool", b"".join(leaves))

    # What is opened, and both tests.
    r = shaped(iter(expand(H("input points", coins[1]), J * queries * classes)), J, queries, classes)
    rho = shaped(iter(expand(H("input factors", coins[1]), voters * J * queries)), voters, J, queries)

    def product(j, q, vector):
        return sum(x * y for x, y in zip(r[j][q], vector, strict=True))

    masked = []
    for side, each, (_, row_seeds) in zip(sides, said, pools, strict=True):
        own = [
            [[(product(j, q, v[q]) + z[j][q]) * (weights[i][q] > 0) % P for q in range(queries)] for j in range(J)]
            for i, (v, _, _, (z, _), _) in enumerate(side)
        ]
        assert each["opened"].startswith(data(own))
        shown = b"".join(row_seeds[row] for row in sorted(order[queries:]))
        assert each["opened"][4 * voters * J * queries + 4 * J :].startswith(shown)
        masked.append(own)
    both = added(*masked)
    tested = [
        [
            sum(
                rho[i][j][q] * (product(j, q, u[j][q]) + e[j][q] - both[i][j][q] * k[j][q]) * (weights[i][q] > 0)
                for i, (_, u, k, _, (e, _)) in enumerate(side)
                for q in range(queries)
            )
            % P
            for j in range(J)
        ]
        for side in sides
    ]
    assert [data(own) for own in tested] == [each["input results"][: 4 * J] for each in said]
    assert not any(added(*tested))

    # What is bound: counts and noise, and macs that fit.
    for at, (side, bound) in enumerate(zip(sides, case["bound"], strict=True)):
        other = case["bound"][1 - at]
        for q, c in ((q, c) for q in range(queries) for c in range(classes)):
            count = sum(weights[i][q] * v[q][c] for i, (v, *_) in enumerate(side))
            number = (count + pools[at][0][order[q]][c]) % P
            assert bound["numbers"][q][c] == number
            for j in range(J):
                assert other["keys"][j][q][c] == (other["alphas"][j] * number + bound["macs"][j][q][c]) % P
