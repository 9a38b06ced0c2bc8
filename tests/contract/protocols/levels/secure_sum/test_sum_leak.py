"""What the coordinator sees is independent of who voted what, given the sum: a statistical test, and its controls.

Fixed adversarial pairs of inputs with equal sums; the coordinator colludes with one party and one other drops out. Of
every message, and of the masked votes less all masks that the two know (their residuals), the law under both inputs is
compared by two-sample chi-squared tests on 64 bins. All tests of a pair together raise a false alarm with probability
1e-6; seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import chi2

from protocols.crypto import masks
from protocols.crypto.masks import agreed, key_stream
from protocols.levels.secure_sum import dealing
from tests.harness.sum_parties import Sum, make_context

FALSE_ALARM = 1e-9
CELLS = 1024
CONTEXT = make_context(6, 1, 1, cells=CELLS)
COLLUDER, DROPPED = 5, 2
HONEST = [0, 1, 3, 4]
TRIALS = 8


def inputs(**values):
    rows = np.zeros((6, CELLS), dtype=np.int64)
    for name, value in values.items():
        rows[int(name[1:])] = value
    return rows


one_hot = np.arange(CELLS) % 8 == 0
PAIRS = {
    "one party votes or another": (inputs(p0=37 * one_hot), inputs(p4=37 * one_hot)),
    "all or one": (inputs(p0=1, p1=1, p3=1, p4=1), inputs(p0=4)),
    "huge values that cancel": (inputs(p0=2**30, p1=-(2**30)), inputs()),
}


def residuals(running):
    """Masked votes less the self masks and all masks that the dropped party's or the colluder's key gives."""
    context, table = running.context, running.keys.table
    about = context.mask_context(running.shared.present)
    for index in HONEST:
        seed = int.from_bytes(running.replies["unmask"][index][0].tobytes(), "little")
        mask = key_stream(dealing.self_mask_key(seed, context, index), context.cells, bits=32)
        left = running.replies["mask"][index][0] - mask
        for known in (COLLUDER, DROPPED):
            if known in context.graph.neighbours(index):
                key = dealing.Secrets(*running.members[known].own).mask_key()
                publics = tuple(table[who, 1].tobytes() for who in (known, index))
                pair = dealing.pair_mask_key(agreed(key, publics[1]), about, (known, index), publics)
                mask = key_stream(pair, context.cells, bits=32)
                left = left - mask if index < known else left + mask
        yield index, left


def view(values, seed):
    """Everything the coordinator and the colluder see, in bins of 64: a name, and numbers below 64."""
    running = Sum(CONTEXT, values, seed=seed, absent={"mask": [DROPPED]})
    opened = running.run()
    np.testing.assert_array_equal(opened.sums, np.delete(values, DROPPED, axis=0).sum(axis=0))
    seen = {}
    assert not running.replies.pop("accuse")  # nobody disputes a share
    for step, replies in running.replies.items():
        for index in HONEST:
            for place, array in enumerate(replies[index]):
                seen[f"{step} {index} {place}"] = np.ascontiguousarray(array).view(np.uint8).ravel() % 64
    rest = dict(residuals(running))
    for index in HONEST:
        seen[f"low {index}"], seen[f"high {index}"] = rest[index] % 64, rest[index] >> 26
        seen[f"difference {index}"] = (rest[index] - rest[HONEST[HONEST.index(index) - 1]]) % 64
    return seen


def p_values(left, right, trials):
    """Of each part of the view, that its law is the same under both inputs."""
    counts = []
    for side, values in enumerate((left, right)):
        total = {}
        for trial in range(trials):
            for name, bins in view(values, 2 * trial + side).items():
                total[name] = total.get(name, 0) + np.bincount(bins, minlength=64)
        counts.append(total)
    for name in counts[0]:
        both = np.stack([counts[0][name], counts[1][name]]).astype(float)
        both = both[:, both.sum(axis=0) > 0]
        expected = both.sum(axis=0) * both.sum(axis=1, keepdims=True) / both.sum()
        statistic = ((both - expected) ** 2 / expected).sum()
        yield name, chi2.sf(statistic, both.shape[1] - 1) if both.shape[1] > 1 else 1.0


def leaks(left, right, trials):
    found = dict(p_values(left, right, trials))
    return [name for name, p in found.items() if p < FALSE_ALARM / len(found)]


@pytest.mark.parametrize("name", PAIRS)
def test_the_view_has_the_same_law_for_inputs_with_equal_sums(name) -> None:
    assert leaks(*PAIRS[name], TRIALS) == []


def unmasked_low_bits(fill):
    def leaky(key, zeros, words):
        fill(key, zeros, words)
        words &= words.dtype.type(2 ** (8 * words.itemsize) - 64)

    return leaky


def biased(fill):

    def leaky(key, zeros, words):
        fill(key, zeros, words)
        words[words % 4 == 0] = 0

    return leaky


@pytest.mark.parametrize("leak", [unmasked_low_bits, biased])
def test_the_same_test_catches_leaky_masks(monkeypatch, leak) -> None:
    """Masks that leave a few bits open, or that are zero too often; sums still come out right."""
    leaky = leak(masks._fill)

    def fill(key, zeros, words):
        # Shares and shuffles use the key stream too; only masks leak.
        (leaky if words.itemsize == 4 else honest)(key, zeros, words)

    honest = masks._fill
    monkeypatch.setattr(masks, "_fill", fill)
    assert leaks(*PAIRS["all or one"], 3)


def test_the_same_test_catches_masks_that_do_not_depend_on_the_pairs_secret(monkeypatch) -> None:
    """They are the same in every trial, so that residuals differ by the votes alone."""
    real = dealing.pairwise

    def public(secret, purpose, about, *, keys):
        return (
            real(bytes(32), purpose, b"", keys=1)
            if purpose == b"pair mask"
            else real(secret, purpose, about, keys=keys)
        )

    monkeypatch.setattr(dealing, "pairwise", public)
    assert leaks(*PAIRS["all or one"], 3)
