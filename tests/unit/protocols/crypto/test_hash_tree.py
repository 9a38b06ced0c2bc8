"""A proof holds for its own row and place alone."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from protocols.crypto.hash_tree import HASH_BYTES, depth, inclusion_proofs, root_from, root_of


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.data())
def test_a_proof_gives_the_root_for_its_row_at_its_place_and_for_no_other(rows, data):
    at = data.draw(st.integers(0, len(rows) - 1))
    proof, root = inclusion_proofs(rows)[at], root_of(rows)
    assert len(proof) == HASH_BYTES * depth(len(rows))
    assert root_from(rows[at], at, proof) == root
    assert root_from(rows[at] + b"x", at, proof) != root
    other = data.draw(st.integers(0, len(rows) - 1))
    if rows[other] != rows[at]:
        assert root_from(rows[other], at, proof) != root


def test_the_root_of_three_rows_is_that_of_four_leaves_hashed_by_hand():
    def sha(data):
        return hashlib.sha256(data).digest()

    leaves = [sha(b"\0" + row) for row in (b"a", b"b", b"c", b"")]
    expected = sha(b"\1" + sha(b"\1" + leaves[0] + leaves[1]) + sha(b"\1" + leaves[2] + leaves[3]))
    assert root_of([b"a", b"b", b"c"]) == expected
    assert root_of([b"a"]) == sha(b"\0a")
