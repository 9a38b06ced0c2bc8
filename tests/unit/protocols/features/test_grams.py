"""Hashed grams: against a slow computation in fractions and plain strings, and on any text."""

import hashlib
import unicodedata
from collections import Counter
from itertools import pairwise
from math import isqrt

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.features.texts import LENGTH, _known_pair, _known_pieces, gram_vectors, words

TEXTS = st.text(alphabet=st.one_of(st.sampled_from("abno pain /.-123ÄßﬁİΣ٣\n\0"), st.characters()), max_size=60)


def slowly(text: str, width: int) -> list[float]:
    """One text's features, gram by gram: integers until the last division."""
    known = unicodedata.ucd_3_2_0
    plain = known.normalize("NFKC", text)
    found = "".join(letter.casefold() if known.category(letter)[0] in "LMN" else " " for letter in plain).split()
    grams = Counter(each + " " for each in found)
    grams.update(f"{first} {second}" for first, second in pairwise(found))
    for each in found:
        padded = f" {each} "
        grams.update("\t" + padded[at : at + size] for size in (3, 4) for at in range(len(padded) - size + 1))
    sums = [0] * width
    for gram, times in grams.items():
        hashed = hashlib.blake2b(gram.encode(), digest_size=8, person=b"conclave grams 1").digest()
        number = int.from_bytes(hashed, "big")
        logarithm = 0
        while 2 ** (logarithm + 1) <= times:
            logarithm += 1
        sums[number % width] += (1 + logarithm) * (-1 if hashed[0] >= 128 else 1)
    square = sum(each * each for each in sums)
    # The length to 60 binary digits.
    return [LENGTH * each * 2**60 / isqrt(square * 2**120) if square else 0.0 for each in sums]


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from([16, 100, 2048]))
def test_vectors_are_those_of_a_slow_computation(text, width):
    (vector,) = gram_vectors([text], width)
    np.testing.assert_allclose(vector, slowly(text, width), rtol=1e-6, atol=0)
    assert np.abs(vector).max() <= LENGTH
    assert not (vector.any() and not words(text))


def test_long_words_are_hashed_like_others_and_not_remembered():
    text = " ".join(["x" * 40, "y" * 65, "y" * 65])
    _known_pair.cache_clear()
    _known_pieces.cache_clear()
    np.testing.assert_allclose(gram_vectors([text], 64)[0], slowly(text, 64), rtol=1e-6, atol=0)
    assert _known_pair.cache_info().currsize == _known_pieces.cache_info().currsize == 1


def test_a_note_has_the_same_features_on_every_machine():
    (vector,) = gram_vectors(["Pt c/o SOB ×2d, denies CP. Fièvre 38,5°"], 16)
    sums = vector / np.abs(vector[vector != 0]).min()
    np.testing.assert_allclose(sums, np.rint(sums), atol=1e-4)
    assert np.rint(sums).astype(int).tolist() == [0, 1, -1, 1, 1, 0, 0, -2, -1, -3, 4, 1, -1, 2, 1, -4]


def test_case_width_and_what_separates_words_do_not_matter_and_their_order_does():
    plain, *same = gram_vectors(["no chest pain", "NO  Chest\tpain!", "ｎｏ chest-pain", "\nno (chest) pain\0"], 512)
    for each in same:
        np.testing.assert_array_equal(each, plain)
    other, twice = gram_vectors(["chest no pain", "no chest pain " * 2], 512)
    assert not np.array_equal(other, plain)
    assert not np.array_equal(twice, plain)


def test_a_letter_that_a_later_unicode_has_separates_words():
    # U+1E9E came with Unicode 5.1, and Python's own tables know it.
    assert words("stra\u1e9ee") == ["stra", "e"]
    assert words("Straße ÉTÉ ﬁn x²") == ["strasse", "été", "fin", "x2"]
    assert words(" -.,\u200b") == []


def test_a_spelling_error_keeps_part_of_a_word_and_a_text_has_one_length():
    vectors = gram_vectors(["chest pain", "chet pain", "dizziness"], 2048).astype(np.float64)
    np.testing.assert_allclose((vectors**2).sum(axis=1), LENGTH**2, rtol=1e-6)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 1
