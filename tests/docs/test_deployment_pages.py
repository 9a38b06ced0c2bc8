"""The pages on deployment are those of the programs: commands, keys of files and of the statement, codes."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import fields

import pytest

from coordinator.commands.group import EPILOG as COORDINATOR_EPILOG
from coordinator.home import Settings as CoordinatorSettings
from party.commands.group import EPILOG as PARTY_EPILOG
from party.settings import DataSettings, Invitation, Settings, TeacherSettings
from protocols.study import Seat, Study
from protocols.terms import Feature, Terms
from tests.docs.flag_tables import PAGE, commands
from tests.docs.pages import ROOT, RunPage, names_of, section

OPERATOR = ROOT / "docs" / "tutorials" / "operator.md"
ERRORS = ROOT / "docs" / "reference" / "errors.md"
FILES = ROOT / "docs" / "reference" / "study-file.md"
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


def test_every_command_of_both_programs_has_a_heading() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for program in ("party", "coordinator"):
        for words in commands(program):
            assert f"\n### conclave-{program} {words}\n" in text, "run: python tests/docs/flag_tables.py"


def test_the_exit_codes_are_those_that_the_help_names() -> None:
    table = section(PAGE, "Exit codes of conclave-party and conclave-coordinator")
    codes = set(re.findall(r"^\| (\d+) \|", table, re.MULTILINE))
    for epilog in (PARTY_EPILOG, COORDINATOR_EPILOG):
        assert set(re.findall(r"\b(\d+) [a-z]", epilog)) == codes


def _keys(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_every_key_of_every_file_is_described_and_no_other() -> None:
    def described(heading: str) -> set[str]:
        return names_of(section(FILES, heading))

    assert described("The study") == _keys(Study) - {"roster", "terms"}
    assert described("[terms]") == _keys(Terms) - {"features"}
    assert described("[[terms.feature]]") == _keys(Feature)
    assert described("[[party]]") == _keys(Seat)
    node = {f"data.{key}" for key in _keys(DataSettings)} | {f"teachers.{key}" for key in _keys(TeacherSettings)}
    node |= {f"node.{key}" for key in _keys(Settings) - {"data", "teachers", "lifetime"}}
    node |= {f"lifetime.{unit}.{key}" for unit in ("record", "party") for key in ("epsilon", "delta")}
    assert described("node.toml") == node
    assert described("coordinator.toml") == _keys(CoordinatorSettings)
    assert described("invitation.toml") == _keys(Invitation)


_RAISED = re.compile(
    r"\b(?:Refused|Refusal|_refuse|Goodbye|Finding|RefusedSeat|Enrolled)\(\s*"
    r"(?:seat, |b\"\", )?\"([a-z_]+)\""
)
_SHOWN = re.compile(r"^    \([A-Z]\w+, \d, \"([a-z_]+)\", \"", re.MULTILINE)


def test_every_code_of_the_programs_is_in_words_and_no_other() -> None:
    raised: set[str] = set()
    for package in ("party", "coordinator", "protocols"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            raised |= {*_RAISED.findall(text), *_SHOWN.findall(text)}
            raised |= set(re.findall(r'code, step = \w+, "([a-z_]+)"', text))
            raised |= set(re.findall(r"error \[([a-z_]+)\]", text))
    described = set(re.findall(r"^\| `([a-z_]+)` \|", ERRORS.read_text(encoding="utf-8"), re.MULTILINE))
    assert not sorted(raised - described), "codes without a line in errors.md"
    for code in described - raised:  # passed on in a variable
        found = subprocess.run(
            ["grep", "-rlE", f'["_]{code}"|"{code.removeprefix("labelling_")}"', "--include=*.py"]
            + [str(ROOT / package) for package in ("party", "coordinator", "protocols")],
            capture_output=True,
        )
        assert found.stdout, f"{code} is in errors.md and nowhere in the code"
