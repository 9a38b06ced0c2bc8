"""The pages on deployment are those of the programs: keys of the statement, of the files, codes, units and containers."""

from __future__ import annotations

import json
import re

import pytest

from tests.docs.pages import ROOT, RunPage, section

OPERATOR = ROOT / "docs" / "tutorials" / "operator.md"
STATEMENT = ROOT / "docs" / "how-to" / "read-a-privacy-statement.md"


def paths(value: object, name: str = "") -> set[str]:
    """The keys of a JSON value, with dots for objects and [] for lists of objects."""
    if isinstance(value, dict) and value:
        return {one for key, inner in value.items() for one in paths(inner, f"{name}.{key}".lstrip("."))}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {one for inner in value for one in paths(inner, f"{name}[]")}
    return {name}


@pytest.mark.slow
def test_every_key_of_a_privacy_statement_is_said_in_words_and_no_other(run_page: RunPage) -> None:
    written = paths(json.loads((run_page(OPERATOR) / "release" / "privacy.json").read_text(encoding="utf-8")))
    rows = re.findall(r"^\| (`.+?`) \|", section(STATEMENT, "Every key"), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}

    def covers(name: str, key: str) -> bool:
        return key == name or key.startswith((f"{name}.", f"{name}[]"))

    assert not [key for key in written if not any(covers(name, key) for name in described)]
    assert not [name for name in described if not any(covers(name, key) for key in written)]
