"""What a text becomes: a sentence vector or counts of its grams, in whole numbers, the same on every machine.

Text as whole numbers: signed hashing of words, of pairs of neighbours and of pieces of words.

Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask Learning", section 2: a gram adds its weight to one
of `width` features, with a sign of its own. Cavnar & Trenkle 1994: pieces of words bear spelling errors.
Nothing depends on the machine, on Python's version or on the order of texts: letters are those of Unicode 3.2, hashes
are BLAKE2b, and weights are whole.

Sentence vectors from public weights: the mean of the vectors of a text's tokens, as in wordllama (extra `text`).

The weights (32,000 tokens, 256 dimensions) and the tokenizer are files of the package wordllama 0.4 (MIT licence; made
from the token embeddings of Llama 2). They are known here by their SHA-256, so other ones are refused, and nothing of
the package runs. The first N dimensions are vectors too (Kusupati et al. 2022, "Matryoshka Representation Learning").

A text as features, by the name of its vectors: "grams:N" or "wordllama:N"; which texts there are vectors of.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import (
    Any,  # tokenizers has no types
    Final,
)

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.stage import whole_steps
from protocols.installing import install
from protocols.reading import read_bytes

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


TOKENS: Final = 32_000
WIDTH: Final = 256
_MOST_BYTES: Final = 2**25
_WEIGHTS: Final = (
    "weights/l2_supercat_256.safetensors",
    "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
)
_TOKENS: Final = (
    "tokenizers/l2_supercat_tokenizer_config.json",
    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
)


@dataclass(frozen=True, eq=False)
class SentenceVectors:
    """tokenizer: gives the tokens of a text; steps: each token's vector in whole steps."""

    tokenizer: Any  # of tokenizers, which has no types
    steps: Int64[ndarray, "tokens dimensions"] = field(repr=False)

    def __call__(self, texts: Sequence[str], width: int) -> Float32[ndarray, "texts width"]:
        """The first `width` dimensions of the sum of each text's tokens, at the length of gram_vectors' rows.

        Sums of whole steps are exact in any order, so the result is the same on every machine; all 0 without a token.
        """
        found = np.zeros((len(texts), width), np.float32)
        for row, text in enumerate(texts):
            tokens = self.tokenizer.encode(text, add_special_tokens=False).ids
            sums = self.steps[tokens, :width].sum(axis=0)
            found[row] = scaled(sums.astype(np.float64), sum(each * each for each in sums.tolist()))
        return found


@cache
def sentence_vectors() -> SentenceVectors:
    """The vectors. Raises InvalidInput where wordllama is not installed, or is another version of it."""
    package = find_spec("wordllama")
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"vectors 'wordllama' need {missing.name}: {install('text')}") from missing
    if package is None or package.origin is None:
        raise InvalidInput(f"vectors 'wordllama' need wordllama, which is not installed: {install('text')}")
    folder = Path(package.origin).parent
    tokens, content = _known(folder, *_TOKENS), _known(folder, *_WEIGHTS)
    tokenizer = Tokenizer.from_str(tokens.decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # The one array of the file ends it.
    weights = np.frombuffer(content, "<f2", offset=len(content) - 2 * TOKENS * WIDTH).reshape(TOKENS, WIDTH)
    return SentenceVectors(tokenizer, whole_steps(weights).astype(np.int64))


def _known(folder: Path, name: str, digest: str) -> bytes:
    content = read_bytes(folder / name, most=_MOST_BYTES)
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise InvalidInput(f"{folder / name} has SHA-256 {found}; allowed: {digest}, as in wordllama 0.4")
    return content


# Of one text: some twenty pages.
MOST_CHARACTERS: Final = 2**16
USUAL_VECTORS: Final = "grams:2048"
ALLOWED: Final = (
    f"a text of a word or more and at most {MOST_CHARACTERS} characters, without NUL, U+FFFD or half surrogate pairs"
)
# What stands for bytes that some program could not read: NUL, U+FFFD, halves of surrogate pairs.
_UNREAD: Final = re.compile("[\0\ufffd\ud800-\udfff]")
_WIDTHS: Final = {"grams": (16, 2**14), "wordllama": (16, WIDTH)}


def text_width(vectors: str) -> int:
    """How many features such vectors have. Raises InvalidInput for a name of no vectors."""
    kind, _, digits = vectors.partition(":")
    least, most = _WIDTHS.get(kind, (1, 0))
    width = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 7 else 0
    if not least <= width <= most:
        allowed = ", ".join(f"{name}:N with N from {low} to {high}" for name, (low, high) in _WIDTHS.items())
        raise InvalidInput(f"vectors is {vectors[:80]!r}; allowed: {allowed}")
    return width


def text_vectors(texts: Sequence[str], vectors: str) -> Float32[ndarray, "texts width"]:
    """The vectors of texts, all 0 for one without a word. Raises InvalidInput, also where a package is missing."""
    width = text_width(vectors)
    return gram_vectors(texts, width) if vectors.startswith("grams") else sentence_vectors()(texts, width)


def is_text(text: str) -> bool:
    """Whether it can be read, words or none."""
    return len(text) <= MOST_CHARACTERS and not _UNREAD.search(text)
