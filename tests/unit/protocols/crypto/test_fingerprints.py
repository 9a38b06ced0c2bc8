import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.crypto import identity
from protocols.crypto.identity import PHRASE_WORDS, normal_fingerprint, phrase, same_fingerprint
from protocols.errors import InvalidInput

WORDS = identity._words()
# Of english.txt as BIP-39 publishes it, a line end after each word.
PUBLISHED = "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda"
digests = st.binary(min_size=32, max_size=32).map(lambda digest: digest.hex(":").upper())


def test_the_list_is_that_of_bip_39():
    assert len(WORDS) == len(set(WORDS)) == 2048
    assert hashlib.sha256("".join(f"{word}\n" for word in WORDS).encode()).hexdigest() == PUBLISHED


@given(digests)
def test_a_phrase_is_the_first_88_bits_of_the_fingerprint(digits):
    words = phrase(digits).split("-")
    assert len(words) == PHRASE_WORDS
    bits = "".join(f"{WORDS.index(word):011b}" for word in words)
    assert bits == f"{int(digits.replace(':', ''), 16):0256b}"[:88]


@given(digests, st.sampled_from([" ", "-", "  ", ", ", ".", "\n", "_", ":"]), st.sampled_from([str.upper, str.title]))
def test_case_and_separators_are_free(digits, separator, written):
    words = phrase(digits)
    assert normal_fingerprint(written(words).replace("-", separator)) == words
    assert normal_fingerprint(written(digits).replace(":", separator)) == digits
    assert same_fingerprint(written(words).replace("-", separator), digits)
    assert same_fingerprint(digits.replace(":", "").lower(), digits)


@given(digests, st.integers(0, 255))
def test_a_bit_that_differs_within_the_phrase_is_another_fingerprint(digits, bit):
    other = (int(digits.replace(":", ""), 16) ^ 1 << (255 - bit)).to_bytes(32, "big").hex(":").upper()
    assert same_fingerprint(phrase(digits), other) == (bit >= 88)
    assert not same_fingerprint(digits, other)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("abandon abilty " + "able " * 6, "word 2 .* 'abilty'.*'ability'"),
        ("abandon " * 7 + "xqzxqzxqz", "word 8 .* 'xqzxqzxqz'; allowed: a word of the list$"),
        ("abandon " * 7, "has 7 words; allowed: 8"),
        ("abandon " * 9, "has 9 words; allowed: 8"),
        ("abandon", "64 hexadecimal digits, in pairs or not, or 8 words"),
        ("AA:BB", "64 hexadecimal digits, in pairs or not, or 8 words"),
        ("0" * 63, "64 hexadecimal digits"),
        ("", "64 hexadecimal digits"),
        ("abandon " * 7 + "аbandon", "word 8"),  # the first letter is Cyrillic
    ],
)
def test_what_is_no_fingerprint_is_refused_and_the_word_named(typed, said):
    with pytest.raises(InvalidInput, match=said):
        normal_fingerprint(typed)


@given(st.text(max_size=200))
def test_any_text_is_a_fingerprint_or_refused(text):
    try:
        normal = normal_fingerprint(text)
    except InvalidInput:
        return
    assert normal_fingerprint(normal) == normal
