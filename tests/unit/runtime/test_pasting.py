import click
import pytest

from runtime.printing import pasteable, pasting_on_page, with_home


@click.group()
def group():
    pass


@group.group()
def study():
    pass


@study.command()
@click.option("--home")
@click.argument("file")
def create(home, file):
    pass


@group.command()
@click.argument("folder")
def verify(folder):
    pass


@pytest.mark.parametrize(
    ("said", "pasted"),
    [
        ("run: tool study create s.toml", "run: tool study create --home 'my home' s.toml"),
        ("`tool study create`, then tool study create x", "`tool study create --home 'my home'`, then tool study "
         "create --home 'my home' x"),
        ("tool verify release", "tool verify release"),  # it takes no home
        ("tool study create with another --home", "tool study create with another --home"),
        ("other study create; tool nothing", "other study create; tool nothing"),
    ],
)  # fmt: skip
def test_a_command_that_takes_a_home_names_the_one_that_was_given(said, pasted):
    assert with_home(said, group=group, program="tool", home="my home") == pasted


def test_a_page_names_the_home_that_the_program_was_given_from_any_folder(monkeypatch):
    monkeypatch.chdir("/")
    with click.Context(group, info_name="tool", obj={"home": "my home"}):
        assert pasteable("tool study create x") == "tool study create --home 'my home' x"
        paste = pasting_on_page()
    assert paste("tool study create x") == "tool study create --home '/my home' x"
    assert pasting_on_page()("tool study create x") == "tool study create x"
