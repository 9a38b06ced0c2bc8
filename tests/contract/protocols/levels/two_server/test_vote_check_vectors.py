"""The vectors of docs/explanation/vote-check.md: the code makes them, and so does an implementation from the page."""

import json

import pytest

from tests.harness.vote_check_slow import R, blinds, checked, coordinator_share, data, flat, guardian_share, shaped
from tests.harness.vote_check_vectors import CASES, FILE, vectors

STORED = json.loads(FILE.read_text())
PARTS = ("votes", "keyed", "constants", "products")


def test_the_code_gives_the_vectors() -> None:
    assert vectors() == STORED
    assert [case["name"] for case in STORED] == list(CASES)


@pytest.mark.parametrize("case", STORED, ids=[case["name"] for case in STORED])
def test_an_implementation_from_the_page_gives_the_vectors(case) -> None:
    context, classes, votes = bytes.fromhex(case["context"]), case["classes"], case["votes"]
    queries = len(votes[0])
    seeds = [[bytes.fromhex(each) for each in case[f"{name}_seeds"]] for name in ("guardian", "coordinator")]
    shares = [coordinator_share(context, g, c, row, classes) for g, c, row in zip(*seeds, votes, strict=True)]
    shapes = (queries, classes), (R, queries, classes), (R, queries), (3,)
    arrays = []
    for at, (name, shape) in enumerate(zip(PARTS, shapes, strict=True)):
        numbers = flat([share[at] for share in shares])
        for altered, position in case["altered"]:
            if altered == name:
                numbers[position] += 1
        assert data(numbers).hex() == case["coordinator_share"][name]
        arrays.append(shaped(iter(numbers), len(votes), *shape))
    coordinators = [
        (*parts, *blinds("coordinator", context, seed, queries)) for *parts, seed in zip(*arrays, seeds[1], strict=True)
    ]
    guardians = [guardian_share(context, seed, queries, classes) for seed in seeds[0]]
    messages, valid = checked(case, coordinators, guardians)
    assert [each.hex() for each in messages] == case["messages"]
    assert valid == case["valid"]


def test_the_cases_that_were_altered_are_those_with_a_voter_that_fails() -> None:
    failing = {case["name"] for case in STORED if not all(case["valid"])}
    assert failing == {case["name"] for case in STORED if case["altered"]} | {"an abstention that is not allowed"}
