"""All that one server sees of a whole batch is distributed the same for votes that give the same declared outputs.

The parts of a view may each be harmless and tell the votes together, so they are taken together here: seals, shares,
both attempts' messages, coins and what a server works out of them; bits and sums of elements modulo p, differences
between voters, the residues under each vote that might be, colours under the tables' lowest bits, random parities.

Two samples are compared by the frequencies of every such bit. By Hoeffding's inequality and a union bound, two means of
n bits of one law differ by more than sqrt(ln(2 k / rate) / n) in any of k places with probability at most `rate`,
whatever the law. The rates of all comparisons of views that are not broken add up to RATE = 1e-9. A sample is one of
the batch's copies of three queries, or an octet of a seal or seed: these are independent as far as the streams of a
seed and the labels under a hash are, which is what the protocol rests on. The seeds of parties and servers are fixed,
those of the seals are not.

The same comparison is made of protocols broken on purpose, and must tell; most of these breaks leave every element of a
view uniform, and show in how two go together.
"""

import numpy as np
import pytest

from protocols.crypto import oblivious_transfer
from protocols.crypto.garbling import LabelHash
from protocols.crypto.prg import derived_key
from protocols.labelling import guardian as guardian_module
from protocols.levels.two_server import ballot as shared_votes
from protocols.levels.two_server import shares
from protocols.wire.messages import decode_arrays, encode_arrays
from tests.harness.joint_views import QUERIES, batch, views

RATE = 1e-9
# Two servers, rows of copies and of octets.
COMPARISONS = 4
PARITIES = 20_000
RUNS, BROKEN_RUNS = 2, 1

# Parties by queries: a unanimous vote or a bare majority of three; who dissents; whom nobody agrees on. The labels are
# 0, 1 and none, in both.
UNANIMOUS = np.array([[0, 1, 0], [0, 1, 0], [0, 1, 1], [0, 2, 2]])
DIVIDED = np.array([[1, 0, 2], [0, 1, 1], [0, 1, 2], [0, 1, 1]])


def furthest(first, second):
    """(the largest difference of frequencies of a bit or of a parity of two, what it may be but for the rate)."""
    assert first.shape == second.shape
    places = first.shape[1]
    left, right = np.random.default_rng(0).integers(0, places, (2, PARITIES))
    largest = 0.0
    for rows in ((first, second), tuple(sample[:, left] ^ sample[:, right] for sample in (first, second))):
        one, other = (np.count_nonzero(sample, axis=0) / len(sample) for sample in rows)
        largest = max(largest, float(np.abs(one - other).max()))
    return largest, float(np.sqrt(np.log(2 * (places + PARITIES) * COMPARISONS / RATE) / len(first)))


def compared(runs, **how):
    """{server: whether its views tell the two sets of votes apart}, of so many batches of each."""
    samples = []
    for number, votes in enumerate((UNANIMOUS, DIVIDED)):
        seen = []
        for seed in range(runs):
            run = batch(votes, 1000 * number + seed, **how)
            np.testing.assert_array_equal(run.labels, np.tile([0, 1, -1], QUERIES // 3))
            seen.append(
                (views(run), [[len(data) for data in each[1:]] for each in run.to_coordinator + run.to_guardian])
            )
        assert all(lengths == seen[0][1] for _, lengths in seen)
        samples.append(seen)
    assert samples[0][0][1] == samples[1][0][1]
    told = {}
    for at, server in enumerate(("coordinator", "guardian")):
        results = [
            furthest(*(np.concatenate([view[at][kind] for view, _ in sample]) for sample in samples)) for kind in (0, 1)
        ]
        told[server] = any(largest > allowed for largest, allowed in results)
    return told


@pytest.mark.slow
def test_neither_server_can_tell_votes_apart_by_all_that_it_sees_of_a_batch() -> None:
    assert compared(RUNS) == {"coordinator": False, "guardian": False}


def test_shares_under_a_mask_that_is_known_would_be_told(monkeypatch) -> None:
    monkeypatch.setattr(shares, "_expanded", lambda label, seeds, count, _: np.full((len(seeds), count), 5, "u4"))
    assert compared(BROKEN_RUNS) == {"coordinator": True, "guardian": True}


def test_parties_that_draw_the_same_seeds_would_be_told() -> None:
    """Every share is uniform, and every opened number; the differences between voters are those of the votes."""
    assert compared(BROKEN_RUNS, party_seed=lambda seat: 0) == {"coordinator": True, "guardian": True}


def test_votes_that_are_opened_under_two_coins_would_be_told() -> None:
    """Each opening is uniform; their difference is <r - r', v>."""

    def forgotten(own, guardians):
        for ledger in (own, guardians):
            steps = ("secret", "number", "coin", "blinded sums", "masked results", "tests")
            for kind in (*steps, "mask number", "masks", "mask results promised", "mask results"):
                ledger.forget(own.stored(0).digest, f"check {kind}")

    assert compared(BROKEN_RUNS, between=forgotten) == {"coordinator": True, "guardian": True}


def test_seals_that_anyone_can_open_would_be_told_by_the_coordinator_alone(monkeypatch) -> None:
    """Seeds and shares are uniform each; the coordinator passes the one on and holds the other."""

    def plain(share, **_):
        return bytes(32) + encode_arrays(share) + bytes(16)

    monkeypatch.setattr(shared_votes, "seal", plain)
    monkeypatch.setattr(guardian_module, "unseal", lambda sealed, **_: decode_arrays(sealed[32:-16]))
    assert compared(BROKEN_RUNS) == {"coordinator": True, "guardian": False}


def test_tables_that_show_their_permute_bits_would_be_told_by_both(monkeypatch) -> None:
    """A hash whose lowest bit is zero: colours are random and so are tables, but the one unmasks the other."""
    finished = LabelHash.finished

    def coloured(self, permuted, tweaks):
        result = finished(self, permuted, tweaks)
        result[..., 0] &= ~np.uint64(1)
        return result

    monkeypatch.setattr(LabelHash, "finished", coloured)
    assert compared(BROKEN_RUNS) == {"coordinator": True, "guardian": True}


def test_an_extension_matrix_that_is_not_masked_would_be_told_by_both(monkeypatch) -> None:
    """Its columns are the other's numbers, which are uniform; the own share opens them."""
    monkeypatch.setattr(oblivious_transfer, "_key", lambda number, *_: derived_key("same", bytes([number])))
    assert compared(BROKEN_RUNS) == {"coordinator": True, "guardian": True}
