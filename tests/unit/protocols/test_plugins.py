"""Parts that other distributions register: found by name, loaded late, named when they are broken."""

import sys

import pytest

from protocols.errors import InvalidInput
from protocols.plugins import Parts
from tests.harness.distributions import install
from tests.harness.refusals import refuses

GROUP = "conclave.tested"


def number(name, loaded):
    if not isinstance(loaded, int):
        raise InvalidInput(f"{name} is {loaded!r}; allowed: a number")
    return loaded


def parts():
    return Parts("number", {"one": 1, "two": "math:tau", "three": "sys:maxsize"}, group=GROUP, check=number)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_plugin_is_listed_without_being_imported_and_loaded_when_it_is_used(folder):
    install(folder, name="tested_late", group=GROUP, entries={"seven": "tested_late:SEVEN"}, source="SEVEN = 7\n")
    table = parts()
    assert list(table) == ["one", "two", "three", "seven"]
    assert "seven" in table
    assert len(table) == 4
    assert "tested_late" not in sys.modules
    assert table["seven"] == 7
    assert table["one"] == 1
    assert table["three"] == sys.maxsize


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import absent_package\n", "ModuleNotFoundError: No module named 'absent_package'"),
        ("raise RuntimeError('of its own')\n", "RuntimeError: of its own"),
        ("OTHER = 1\n", "AttributeError"),
        ("SEVEN = 'seven'\n", "seven is 'seven'; allowed: a number"),
    ],
)
def test_a_plugin_that_is_broken_is_named_and_breaks_nothing_else(folder, monkeypatch, source, why):
    install(folder, name="tested_broken", group=GROUP, entries={"seven": "tested_broken:SEVEN"}, source=source)
    monkeypatch.delitem(sys.modules, "tested_broken", raising=False)
    table = parts()
    assert table["one"] == 1
    assert table.loadable() == {"one": 1, "three": sys.maxsize}
    with pytest.raises(InvalidInput) as refused:
        _ = table["seven"]
    assert "number 'seven', which the distribution tested_broken registers as tested_broken:SEVEN" in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize("name", ["one", "One", "../one"])
def test_a_plugin_does_not_take_the_name_of_a_built_in_part_nor_an_odd_one(folder, name):
    install(folder, name="tested_shadow", group=GROUP, entries={name: "tested_shadow:ONE"}, source="ONE = 99\n")
    table = parts()
    with pytest.warns(RuntimeWarning, match="the distribution tested_shadow registers a number"):
        assert list(table) == ["one", "two", "three"]
    assert table["one"] == 1


def test_a_name_that_two_distributions_register_is_refused_with_both_named(folder):
    install(folder, name="tested_first", group=GROUP, entries={"seven": "math:inf"})
    install(folder, name="tested_second", group=GROUP, entries={"seven": "math:pi"})
    with refuses(InvalidInput, "tested_first", "tested_second"):
        _ = parts()["seven"]


def test_an_unknown_name_is_refused_with_the_names_that_there_are():
    with refuses(InvalidInput, "number", "ten"):
        _ = parts()["ten"]
