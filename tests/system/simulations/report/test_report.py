import re
import shlex
from html.parser import HTMLParser

import click
import pytest

from protocols.errors import StorageFailed
from protocols.plural import at_most
from simulations.options import settings_flags, settings_from
from simulations.plots.figures import drawings
from simulations.report.page import render_report, write_report
from simulations.results.files import summary, write_results
from simulations.results.text import command, count, percentage
from simulations.setup.experiment import experiment, read_config
from tests.harness.refusals import refuses
from tests.harness.stored_runs import stored_run


class Page(HTMLParser):
    """The tags and the words of a page; fails on tags that are not closed."""

    VOID = frozenset(("meta", "br"))

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return stored_run(tmp_path_factory.mktemp("votes"), seeds=(0, 1, 2))


@pytest.fixture(scope="module")
def drawn(result):
    return drawings(result, summary(result))


@pytest.fixture(scope="module")
def page(result, drawn):
    return Page(render_report(result, summary(result), drawn))


def test_the_report_is_one_file_that_loads_nothing(result, drawn, tmp_path):
    path = write_report(result, summary(result), drawn, tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    html = path.read_text(encoding="utf-8")
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    tags = Page(html).tags
    assert not {tag for tag, _ in tags} & {"script", "link", "iframe", "object", "embed", "img"}
    for _, attributes in tags:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))


def test_a_report_that_cannot_be_written_is_a_storage_error(result, tmp_path):
    (tmp_path / "out").write_text("a file")
    with refuses(StorageFailed, "report.html"):
        write_report(result, summary(result), (), tmp_path / "out")


def test_every_group_tells_its_cap_and_marks_the_reading_as_no_guarantee(result, page):
    for group in summary(result)["groups"]:
        row = (
            f"{count(group['size'])} {at_most(group['budget'])} {at_most(group['epsilon_guaranteed'])} 1e-05 "
            f"{group['weight']:.3g} {percentage(group['share_of_budget_used'])} {at_most(group['epsilon_spent'])}"
        )
        assert row.replace("\xa0", " ") in page.words
    assert "Operator's reading of ε spent: no guarantee" in page.words


def test_the_page_is_accessible(page):
    tags = page.tags
    assert ("html", {"lang": "en"}) in tags
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in tags if tag == "th")
    figures = [attributes for tag, attributes in tags if tag == "svg"]
    # Each is drawn twice: for a telephone, of which a screen shows nothing, too.
    assert [attributes.get("class") for attributes in figures] == [None, "telephone"] * 4
    assert all(attributes["role"] == "img" and len(attributes["aria-label"]) > 40 for attributes in figures)
    names = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(names) == len(set(names))
    headings = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1


def test_names_from_files_are_escaped(tmp_path):
    (tmp_path / "budgets.csv").write_text(
        "party,epsilon,delta\n" + "".join(f"<b>h{i}</b> & co,{2 + i % 2},1e-5\n" for i in range(40))
    )
    run = stored_run(tmp_path, budgets=str(tmp_path / "budgets.csv"))
    html = render_report(run, summary(run), drawings(run, summary(run)))
    assert "<b>" not in html
    assert "&lt;b&gt;h0&lt;/b&gt; &amp; co" in html


def test_the_command_of_a_report_repeats_its_settings():
    settings = experiment(
        parties=12,
        dataset="my data.csv",
        seeds=(0, 1, 2, 7),
        baselines=False,
        sigma=3.5,
        delta=1e-6,
        budgets="lognormal:2,0.5",
        unit="party",
        threshold=-1.0,
    )
    found = []
    reader = click.command()(settings_flags(lambda **flags: found.append(settings_from(flags))))
    words = shlex.split(command(settings))
    assert words[:2] == ["conclave-simulate", "run"]
    reader.main(words[2:], standalone_mode=False)
    assert found == [settings]


def test_the_configuration_of_a_report_is_the_one_of_the_run(result, tmp_path):
    figures = write_results(result, tmp_path)
    html = write_report(result, figures, (), tmp_path).read_text(encoding="utf-8")
    assert read_config(tmp_path / "config.toml") == result.settings
    words = Page(html).words
    for line in (tmp_path / "config.toml").read_text().splitlines():
        assert " ".join(line.split()) in words
