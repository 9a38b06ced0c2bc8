"""The gallery shows what it says: its commands are commands; each image is there, small, legible, and told in words."""

import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import PurePosixPath

import click
import pytest

from simulations.commands.group import cli
from simulations.options import settings_from
from tests.harness.pages import Call, blocks, steps
from tests.system.docs.gallery import PAGE, Shown, shown

CALLS = [step for block in blocks(PAGE) for step in steps(block) if isinstance(step, Call)]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: shlex.join(call.arguments)[:40])
def test_every_command_of_the_gallery_is_one(call: Call) -> None:
    name, *arguments = call.arguments
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    flags = command.make_context(name, arguments).params
    assert flags["out"]
    if name == "run":
        assert settings_from({**flags, "words": ()}).dataset == "digits"


@pytest.mark.parametrize("each", shown(), ids=lambda each: each.image.stem)
def test_every_image_is_there_small_and_legible_in_light_and_dark(each: Shown) -> None:
    text = each.image.read_text(encoding="utf-8")
    assert len(text.encode()) < 60_000
    assert ElementTree.fromstring(text).attrib["aria-label"] == each.alt
    assert len(each.alt.split()) >= 8
    assert "prefers-color-scheme: dark" in text
    assert 'fill="var(--page)"' in text
    assert "var(--c-ink)" in text
    assert "#1c2430;" in text.partition("</style>")[0]
    assert "#1c2430" not in text.partition("</style>")[2]
    # It is a figure of a command above it.
    assert any(PurePosixPath(each.figure).is_relative_to(call.arguments[call.arguments.index("--out") + 1])
               for call in CALLS)  # fmt: skip


def test_the_page_shows_all_images_of_its_folder_and_no_other() -> None:
    assert 6 <= len(shown()) <= 10
    assert {each.image for each in shown()} == {*(PAGE.parent / "images" / "gallery").iterdir()}
    assert PAGE.read_text(encoding="utf-8").count("![") == len(shown())
