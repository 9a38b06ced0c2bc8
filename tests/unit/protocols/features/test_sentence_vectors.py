"""Sentence vectors: exact sums of tokens' vectors, and what is said where their files are not there or other ones."""

import sys
from fractions import Fraction
from math import isqrt
from types import SimpleNamespace

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.features import texts
from protocols.features.texts import LENGTH, SentenceVectors, text_vectors
from tests.harness.refusals import refuses

STEPS = np.random.default_rng(4).integers(-8000, 8000, size=(6, 20))


class Tokenizer:
    """A token for each word that is a digit."""

    def encode(self, text, *, add_special_tokens):
        assert not add_special_tokens
        return SimpleNamespace(ids=[int(word) for word in text.split() if word.isdecimal()])


def test_a_text_is_the_sum_of_its_tokens_at_one_length():
    texts = ["1 2 2 5", "no token", "3"]
    found = SentenceVectors(Tokenizer(), STEPS)(texts, 16)
    assert not found[1].any()
    for text, row in zip(texts[::2], found[::2], strict=True):
        sums = [sum(int(STEPS[int(word), at]) for word in text.split()) for at in range(16)]
        root = Fraction(isqrt(sum(each * each for each in sums) << 120), 2**60)
        np.testing.assert_allclose(row, [float(Fraction(LENGTH) * each / root) for each in sums], rtol=1e-6)


@pytest.fixture
def unknown():
    """Nothing is remembered of another test."""
    texts.sentence_vectors.cache_clear()
    yield
    texts.sentence_vectors.cache_clear()


@pytest.mark.parametrize("absent", ["wordllama", "tokenizers"])
def test_without_the_extra_its_command_is_named(monkeypatch, unknown, absent):
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=None))
    monkeypatch.setitem(sys.modules, absent, None)
    monkeypatch.setattr(texts, "find_spec", lambda name: None)
    with refuses(InvalidInput, absent, "[text]"):
        text_vectors(["chest pain"], "wordllama:64")


def test_weights_of_another_version_are_refused(monkeypatch, unknown, tmp_path):
    (tmp_path / "tokenizers").mkdir()
    (tmp_path / "tokenizers" / "l2_supercat_tokenizer_config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=None))
    origin = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(texts, "find_spec", lambda name: origin)
    with refuses(InvalidInput, "SHA-256"):
        text_vectors(["chest pain"], "wordllama:64")


def test_the_packages_own_weights_find_words_alike():
    vectors = text_vectors(["chest pain", "pain in the chest", "the train to Leeds"], "wordllama:256")
    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert near > 2 * far
