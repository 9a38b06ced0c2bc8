"""The pages on deployment are those of the programs: commands, keys of files and of the statement, codes."""

import json
import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import pytest

from coordinator.connection.hub import INBOUND_BYTES
from coordinator.connection.relaying import AT_ONCE, PER_SECOND
from coordinator.home import CoordinatorSettings
from party.budget.policy import Policy
from party.data import LOADERS
from party.data.mapping import DataMapping, Form
from party.data.records import DataSettings
from party.home import PartyHome
from party.lifetime import LifetimeCap
from party.settings import Invitation, PartySettings, TeacherSettings
from protocols.crypto.identity import PEM_BYTES
from protocols.mechanisms import mechanism_parameters
from protocols.study.file import read_study
from protocols.study.levels import LEVELS
from protocols.study.study import Seat, Study
from protocols.study.terms import Feature, Terms
from protocols.study.units import UNITS
from protocols.study.votes import TeacherVotes, UnitSums
from protocols.sums.judging import Evaluation
from protocols.wire.enrolment import ENROL_BYTES, ENROL_METHOD
from protocols.wire.frames import FRAME_BYTES, SESSION_METHOD, WIRE_VERSIONS, Frame
from protocols.wire.messages import MESSAGE_BYTES, Reply, Request
from protocols.wire.relay import RELAY_METHOD, RELAYED_BYTES
from runtime.cli import EPILOG
from tests.harness.pages import ROOT, RunPage, blocks, names_of, section
from tests.harness.refusals import refused_for
from tests.system.docs.flag_tables import PAGE, commands

OPERATOR = ROOT / "docs" / "tutorials" / "operator.md"
FILES = ROOT / "docs" / "reference" / "study-file.md"
WIRE = ROOT / "docs" / "reference" / "wire.md"
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
    described = names_of(section(STATEMENT, "Every key"))

    def covers(name: str, key: str) -> bool:
        return key == name or key.startswith((f"{name}.", f"{name}[]"))

    assert not [key for key in written if not any(covers(name, key) for name in described)]
    # The statement of records has its own noise, which test_record_release.py holds to the page.
    of_teachers = [name for name in described if not name.startswith("noise.")]
    assert not [name for name in of_teachers if not any(covers(name, key) for key in written)]


def test_every_command_of_every_program_has_a_heading() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for program in ("party", "coordinator", "guardian"):
        of_program = text.partition(f"\n## conclave-{program}\n")[2].partition("\n## ")[0]
        for words in commands(program):
            assert f"\n### {words}\n" in of_program, "run: python tests/system/docs/flag_tables.py"


def test_the_exit_codes_are_those_that_the_help_names() -> None:
    table = section(PAGE, "Exit codes of conclave-party, conclave-coordinator and conclave-guardian")
    codes = set(re.findall(r"^\| (\d+) \|", table, re.MULTILINE))
    assert set(re.findall(r"\b(\d+) [a-z]", EPILOG)) == codes


def _keys(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_every_key_of_every_file_is_described_and_no_other() -> None:
    def described(heading: str) -> set[str]:
        return names_of(section(FILES, heading))

    assert described("The study") == _keys(Study) - {"roster", "terms", "confidentiality", "votes"}
    assert described("Where teachers vote") == _keys(TeacherVotes) - {"mechanism"}
    assert described("[records]") == _keys(UnitSums) - {"evaluation"}
    assert described("[evaluation]") == _keys(Evaluation)
    assert described("[mechanism]") == {"name", *mechanism_parameters()}
    assert described("[confidentiality]") == {"level"}.union(*map(_keys, LEVELS.values())) - {"seat_keys"}
    assert described("[terms]") == _keys(Terms) - {"features", "findings"}
    assert described("[[terms.feature]]") == _keys(Feature)
    assert described("[[party]]") == _keys(Seat) | {"signing_key"}
    of_sources = {key for loader in LOADERS for key in _keys(LOADERS[loader])}
    node = {f"data.{key}" for key in (_keys(DataSettings) - {"source"}) | of_sources}
    node |= {f"teachers.{key}" for key in _keys(TeacherSettings)}
    node |= {f"node.{key}" for key in _keys(PartySettings) - {"data", "teachers", "lifetime"}}
    node |= {f"lifetime.{unit}.{key}" for unit in UNITS for key in ("epsilon", "delta")}
    assert described("node.toml") == node
    assert described("mapping.toml") == _keys(DataMapping) - {"form"} | _keys(Form)
    assert described("coordinator.toml") == _keys(CoordinatorSettings)
    assert described("invitation.toml") == _keys(Invitation)


def test_the_table_of_a_nodes_dependencies_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["party"]
    names = {re.split(r"[<>=\[]", each)[0] for each in wanted}
    assert names_of(section(ROOT / "docs" / "how-to" / "install.md", "What a node installs")) == names


def test_the_sizes_of_the_wire_are_those_of_the_code() -> None:
    text = WIRE.read_text(encoding="utf-8")
    assert f"- a message: {MESSAGE_BYTES // 2**20} MiB\n" in text
    assert FRAME_BYTES == MESSAGE_BYTES + 64 * 2**10
    assert f"- a frame that the coordinator takes from a node: {INBOUND_BYTES // 2**20} MiB\n" in text
    assert f"- an enrolment message: {ENROL_BYTES // 2**10} KiB\n" in text
    assert f"- a certificate or request: {PEM_BYTES // 2**10} KiB\n" in text
    assert f"- a frame that is relayed: {RELAYED_BYTES // 2**20} MiB\n" in text
    assert f"relayed at once, and in a second: {AT_ONCE}, and {PER_SECOND:g}; others wait" in text
    for method in (SESSION_METHOD, ENROL_METHOD, RELAY_METHOD):
        assert f"`{method}`" in text
    for named in (*get_args(Frame), *get_args(Request), *get_args(Reply)):
        assert f"`{named.__name__}`" in text
    assert WIRE_VERSIONS == (1,), "the section on versions says that there is one"


@pytest.mark.parametrize(("epsilon", "most"), [(4.0, 3), (2.0, 9)])
def test_as_many_studies_fit_into_a_lifetime_cap_as_the_page_on_ledgers_says(
    tmp_path: Path, epsilon: float, most: int
) -> None:
    page = (ROOT / "docs" / "explanation" / "ledgers.md").read_text(encoding="utf-8")
    assert "at epsilon 4, three fit into a lifetime cap of 8, and at epsilon 2 nine fit" in " ".join(page.split())
    text = next(block.text for block in blocks(OPERATOR) if "> study.toml <<" in block.text)
    # As `study create` fills it in.
    pool = f'[terms]\npool_size = 142\npool_sha256 = "{"0" * 64}"\n'
    text = text.partition("\n")[2].rpartition("END\n")[0].replace("[terms]\n", pool)
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    study = read_study(tmp_path / "study.toml")
    roster = tuple(replace(seat, epsilon=epsilon) for seat in study.roster)
    caps = {"record": LifetimeCap(8.0, 1e-5)}
    with Policy(":memory:") as policy:
        for number in range(most):
            one = replace(study, name=f"study-{number}", roster=roster)
            policy.approve(
                one, party="north", data_set="register", caps=caps, home=PartyHome(tmp_path), told_apart=False
            )
        if epsilon == 4:
            one = replace(study, name="one-more", roster=roster)
            with refused_for("lifetime_cap"):
                policy.approve(
                    one, party="north", data_set="register", caps=caps, home=PartyHome(tmp_path), told_apart=False
                )
