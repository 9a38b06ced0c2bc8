"""A text as features, by the name of its vectors: "grams:N" or "wordllama:N"; which texts there are vectors of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from jaxtyping import Float32
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.grams import gram_vectors
from protocols.features.sentence_vectors import WIDTH, sentence_vectors

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
