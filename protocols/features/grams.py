"""Text as whole numbers: signed hashing of words, of pairs of neighbours and of pieces of words.

Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask Learning", section 2: a gram adds its weight to one
of `width` features, with a sign of its own. Cavnar & Trenkle 1994: pieces of words bear spelling errors.
Nothing depends on the machine, on Python's version or on the order of texts: letters are those of Unicode 3.2, hashes
are BLAKE2b, and weights are whole.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt64
from numpy import ndarray

# Of a text's vector, so that a teacher learns from a hundred of them as it does from standardised numbers.
LENGTH: Final = 8.0
_PIECES: Final = (3, 4)
_UNICODE: Final = unicodedata.ucd_3_2_0
_REMEMBERED: Final = 2**16
# Letters of words whose hashes are remembered: longer ones, of which a pool may hold any number, would fill the memory.
_USUAL: Final = 64


def gram_vectors(texts: Sequence[str], width: int) -> Float32[ndarray, "texts width"]:
    """Each text's grams, hashed; all 0 for a text without a word.

    A gram that occurs n times counts 1 + floor(log2 n). The sums are whole and exact; then each row is scaled to the
    length LENGTH, with IEEE 754's square root and quotient, and rounded to float32. A row whose grams cancel stays 0.
    """
    found = np.zeros((len(texts), width), np.float32)
    for row, text in enumerate(texts):
        hashes, weights = _grams(words(text))
        if len(hashes):
            signs = 1 - 2 * (hashes >> np.uint64(63)).astype(np.int64)
            sums = np.bincount((hashes % np.uint64(width)).astype(np.int64), signs * weights, width)
            found[row] = scaled(sums, int(np.dot(sums, sums)))
    return found


def scaled(sums: Float64[ndarray, " width"], square: int) -> Float64[ndarray, " width"]:
    """Whole sums at the length LENGTH; square: the sum of their squares, exact."""
    return sums * (LENGTH / math.sqrt(max(1, square)))


def words(text: str) -> list[str]:
    """The runs of letters, marks and digits of a text, in lower case and in Unicode's compatible form (NFKC)."""
    return "".join(map(_letter, _UNICODE.normalize("NFKC", text))).split()


def word_hash(gram: str) -> int:
    """The hash of a gram, in [0, 2**64): the highest bit is its sign, and the hash modulo the width its place."""
    return int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8, person=b"conclave grams 1").digest(), "big")


def _grams(found: list[str]) -> tuple[UInt64[ndarray, " grams"], Int64[ndarray, " grams"]]:
    """The hash of each different gram, and what it counts."""
    if not found:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    pairs = [*((each, "") for each in found), *pairwise(found)]
    hashed = ((_known_pair if len(one + other) <= _USUAL else _pair)(one, other) for one, other in pairs)
    whole = np.fromiter(hashed, np.uint64, len(pairs))
    pieces = [(_known_pieces if len(each) <= _USUAL else _pieces)(each) for each in found]
    hashes, times = np.unique(np.concatenate([whole, *pieces]), return_counts=True)
    # frexp gives the number of binary digits: 1 + floor(log2 n).
    return hashes, np.frexp(times)[1].astype(np.int64)


def _pair(first: str, second: str) -> int:
    return word_hash(f"{first} {second}")


def _pieces(word: str) -> UInt64[ndarray, " pieces"]:
    """The hashes of all runs of 3 and 4 letters of a word between two blanks."""
    within = f" {word} "
    runs = (within[at : at + size] for size in _PIECES for at in range(len(within) - size + 1))
    return np.array([word_hash(f"\t{run}") for run in runs], np.uint64)


_known_pair, _known_pieces = lru_cache(_REMEMBERED)(_pair), lru_cache(_REMEMBERED)(_pieces)


@lru_cache(_REMEMBERED)
def _letter(letter: str) -> str:
    return letter.casefold() if _UNICODE.category(letter)[0] in "LMN" else " "
