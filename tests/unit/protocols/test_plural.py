import pytest

from protocols.plural import counted


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "record", "1 record"),
        (0, "record", "0 records"),
        (2, "query", "2 queries"),
        (1, "querying party", "1 querying party"),
        (2, "querying party", "2 querying parties"),
    ],
)
def test_a_number_has_its_noun_in_the_singular_or_the_plural(number, noun, said):
    assert counted(number, noun) == said
