"""A module is one idea: no Python file of source, tests or benchmarks grows past what is read at once."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = 600
FOLDERS = (
    "conclave", "simulations", "party", "coordinator", "guardian", "runtime", "protocols", "tests", "benchmarks",
)  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_has_more_lines_than_are_read_at_once(folder):
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "wire_pb2.py"  # generated
    }
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > LINES} == {}
