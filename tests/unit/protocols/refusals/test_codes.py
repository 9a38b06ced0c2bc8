"""Codes: each has a meaning, each is raised somewhere, and no program raises one that is not in the enum."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from protocols.errors import Refused
from protocols.refusals.code import Code
from protocols.refusals.table import meaning_of, sections
from protocols.wire.messages import Refusal, decode, encode

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").exists())
PROGRAMS = ("protocols", "runtime", "party", "coordinator", "guardian", "simulations", "conclave")
# What raises, sends or tells a code.
RAISING = frozenset("Refused Refusal RefusedSeat Goodbye say_goodbye Enrolled LeftOut Discrepancy _refuse".split())


@cache
def trees() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple(parsed())


def parsed() -> Iterator[tuple[Path, ast.Module]]:
    for program in PROGRAMS:
        for path in sorted((ROOT / program).rglob("*.py")):
            if "refusals" not in path.parts and "wire_pb2" not in path.name:
                text = path.read_text(encoding="utf-8")
                if any(word in text for word in (*RAISING, "Code.", ".code")):
                    yield path.relative_to(ROOT), ast.parse(text)


def name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def texts_for_codes(tree: ast.Module) -> Iterator[str]:
    """Literal texts where a code is raised, sent or compared with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) in RAISING:
            given = [each.value for each in node.args if isinstance(each, ast.Constant)]
            given += [each.value.value for each in node.keywords if isinstance(each.value, ast.Constant)]
            yield from (text for text in given if isinstance(text, str) and text in set(Code))
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and name_of(node.func) != "RefusedSeat":
                yield first.value
        elif isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(isinstance(side, ast.Attribute) and side.attr == "code" for side in sides):
                constants = (each for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant))
                yield from (each.value for each in constants if isinstance(each.value, str))


def test_codes_are_raised_sent_and_compared_by_the_enum_alone():
    found = [f"{path}: {text!r}" for path, tree in trees() for text in texts_for_codes(tree) if text != ""]
    assert found == []


def test_every_code_is_raised_or_shown_somewhere():
    raised: set[str] = set()
    for _, tree in trees():
        looked_for = [node for node in ast.walk(tree) if isinstance(node, ast.Compare | ast.Set)]
        elsewhere = {id(each) for node in looked_for for each in ast.walk(node)}
        raised |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and name_of(node.value) == "Code" and id(node) not in elsewhere
        }
    assert {code.name for code in Code} - raised == set()


def test_every_code_has_one_meaning_in_one_section():
    listed = [code for section in sections().values() for code in section]
    assert sorted(listed) == sorted(Code)
    for code in Code:
        said = meaning_of(code)
        assert said.means
        assert said.next_step
        assert said.seen_by.words


def test_a_code_travels_as_its_text_and_compares_as_it():
    refusal = decode(encode(Refusal(Code.UNKNOWN_STUDY, "x")))
    assert refusal == Refusal("unknown_study", "x")
    assert refusal.code == Code.UNKNOWN_STUDY
    assert str(Refused(Code.UNKNOWN_STUDY, "x")) == "unknown_study: x"


@pytest.mark.parametrize("code", ["of_newer_software", "Refused", ""])
def test_a_code_of_other_software_is_passed_on_and_shown_as_any_refusal_is(code):
    assert decode(encode(Refusal(code, "x"))).code == code
    assert meaning_of(code) == meaning_of(Code.REFUSED)
