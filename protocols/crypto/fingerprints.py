"""Fingerprints of keys as people compare them: hexadecimal digits, or eight words to say over a telephone.

A phrase is the first 88 bits of the fingerprint, 11 in each word of the English list of BIP-39, most significant bit
first. A person who types it compares 88 bits: somebody who wants to pass another key off must find one whose SHA-256
begins with these, about 2^88 keys tried. That is a second preimage; that one owner can make two keys with one phrase,
after about 2^44, gains nothing, as both are the owner's.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence
from importlib import resources
from typing import Final

from protocols.errors import InvalidInput

PHRASE_WORDS: Final = 8
_WORD_BITS: Final = 11
_HEX_DIGITS: Final = 64
_SEPARATORS: Final = re.compile(r"[\s:.,;_-]+")


def phrase(fingerprint: str) -> str:
    """The words of a fingerprint, between hyphens, so that a shell takes them as one. fingerprint: 64 digits in pairs.

    >>> phrase("00:" * 31 + "00")
    'abandon-abandon-abandon-abandon-abandon-abandon-abandon-abandon'
    """
    bits, words = PHRASE_WORDS * _WORD_BITS, _words()
    number = int(fingerprint.replace(":", ""), 16) >> (4 * _HEX_DIGITS - bits)
    return "-".join(words[number >> at & (2**_WORD_BITS - 1)] for at in range(bits - _WORD_BITS, -1, -_WORD_BITS))


def in_both_forms(fingerprint: str) -> str:
    """The digits and the words of a fingerprint, in one line of a message."""
    return f"{fingerprint} ({phrase(fingerprint)})"


def normal_fingerprint(text: str) -> str:
    """What was typed, in one form: 64 capital digits in pairs, or eight words between hyphens.

    Case and separators are free. Raises InvalidInput, which names the word that is in no list.
    """
    digits = _SEPARATORS.sub("", text).upper()
    if re.fullmatch(f"[0-9A-F]{{{_HEX_DIGITS}}}", digits):
        return ":".join(digits[at : at + 2] for at in range(0, _HEX_DIGITS, 2))
    said = [word for word in _SEPARATORS.split(text.lower()) if word]
    if sum(re.fullmatch(r"[^\W\d_]{3,}", word) is not None for word in said) < 2:  # the shortest words have three
        raise InvalidInput(
            f"fingerprint is {text[:120]!r}; allowed: {_HEX_DIGITS} hexadecimal digits, in pairs or not, or "
            f"{PHRASE_WORDS} words"
        )
    _check_words(said)
    return "-".join(said)


def same_fingerprint(typed: str, fingerprint: str) -> bool:
    """Whether this fingerprint, in digits, was typed in either form. Raises InvalidInput as normal_fingerprint does."""
    return normal_fingerprint(typed) in (fingerprint, phrase(fingerprint))


def _check_words(said: Sequence[str]) -> None:
    words = _words()
    for place, word in enumerate(said, start=1):
        if word not in words:
            near = difflib.get_close_matches(word[:20], words, n=1)
            raise InvalidInput(
                f"word {place} of the fingerprint is {word[:20]!r}; allowed: a word of the list"
                + (f", such as {near[0]!r}" if near else "")
            )
    if len(said) != PHRASE_WORDS:
        raise InvalidInput(f"the fingerprint has {len(said)} words; allowed: {PHRASE_WORDS}")


@functools.cache
def _words() -> tuple[str, ...]:
    """The 2,048 words, in the order of the list: words.txt, whose first lines are its licence."""
    lines = resources.files("protocols.crypto").joinpath("words.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))
