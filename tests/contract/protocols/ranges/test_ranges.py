"""Every integer that travels has a range in one table, and nothing is decoded around it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from protocols.errors import InvalidInput, MalformedMessage
from protocols.ledger.audit_log import EMPTY
from protocols.levels.two_server.conversation import Submission, head_array, head_of
from protocols.ranges import RANGES
from protocols.study.queries import QueryBatch
from tests.harness.outside_ranges import DIGEST, HEAD, of_protobuf
from tests.harness.refusals import refuses

ROOT = Path(__file__).resolve().parents[4]


def test_every_integer_of_the_wires_messages_is_in_the_table():
    assert of_protobuf() <= set(RANGES)
    assert len(of_protobuf()) >= 9


@pytest.mark.parametrize(
    "ids",
    [
        [5, -(2**63) + 4],  # the difference wraps to 2**63 - 1
        [5, -(2**63) + 4, -(2**63) + 5],
        [0, 2**62, -(2**63) + 1],
        [2**63 - 1, -(2**63)],
        [-1, 0],
        [1, 1],
        [2, 1],
        [],
    ],
)
def test_ids_that_wrap_repeat_descend_or_are_negative_are_no_batch(ids):
    array = np.array(ids, dtype=np.int64)
    with refuses(InvalidInput, "allowed"):
        QueryBatch(0, array, np.zeros((len(ids), 1), np.float32))
    one = np.array([0], dtype=np.int64)
    for position in (3, 4, 5):
        good = Submission(DIGEST, DIGEST, 0, one, one, one, (b"sealed",), EMPTY, EMPTY).arrays()
        with refuses(MalformedMessage, "allowed"):
            Submission.read((*good[:position], array, *good[position + 1 :]))


def sources() -> Iterator[tuple[str, str]]:
    for folder in ("protocols", "runtime", "party", "coordinator", "guardian"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name != "wire_pb2.py":
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_messages_are_parsed_in_one_place_which_checks_their_integers():
    parsing = ("FromString", "ParseFromString", "MergeFromString")
    found = {name for name, text in sources() if any(word in text for word in parsing)}
    # An ONNX model is a file, not a message: it has a check of its own, and one of scores is compared whole.
    assert found == {"protocols/ranges.py", "protocols/features/onnx_graph.py", "coordinator/release/export_graphs.py"}


def test_nobody_but_the_table_tells_an_array_of_integers_that_came_from_another():
    """A decoder that compares a dtype with int64 would take integers without a range."""
    found = []
    for name, text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare) and "dtype" in (said := ast.unparse(node)) and "np.int64" in said:
                found.append(name)
    # Its own votes with noise; constants of a model that it writes; files that a hospital wrote itself.
    own = {f"party/teachers/{kind}.py" for kind in ("torch_teacher", "linear", "trees")}
    made = {"protocols/levels/secure_sum/ballot.py", "coordinator/release/export_graphs.py"}
    allowed = {"protocols/ranges.py", *made, *own}
    assert set(found) <= allowed


def test_a_guardians_head_comes_back_as_it_was():
    assert head_of(head_array(HEAD)) == HEAD
