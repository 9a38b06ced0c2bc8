"""Sentence vectors from public weights: the mean of the vectors of a text's tokens, as in wordllama (extra `text`).

The weights (32,000 tokens, 256 dimensions) and the tokenizer are files of the package wordllama 0.4 (MIT licence; made
from the token embeddings of Llama 2). They are known here by their SHA-256, so other ones are refused, and nothing of
the package runs. The first N dimensions are vectors too (Kusupati et al. 2022, "Matryoshka Representation Learning").
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final  # tokenizers has no types

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.features.grams import scaled
from protocols.features.steps import whole_steps
from protocols.installing import install
from protocols.reading import read_bytes

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
