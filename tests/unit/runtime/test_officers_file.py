"""The officer's file: what the system knows is filled in, what only people know is a blank, and nothing is promised."""

import re

import pytest

from protocols.claims.strength import percent_at_most
from protocols.plural import at_most
from protocols.study.several_hospitals import each_seat
from runtime.officers_file import Course, Hospital, officers_file
from tests.harness.studies import deployed_study

ASKED = Course(released="2031-05-06T07:08:09+00:00", asked=36, answered=25, ended="every query of the pool was asked")


@pytest.fixture(scope="module")
def study():
    return deployed_study(name="left-or-right", epsilon=8.0)


def test_what_the_system_knows_is_filled_in(study):
    page = officers_file(study, asked=ASKED)
    for known in (study.digest.hex(), "tell left from right", "centre", "hospital-0, hospital-1, hospital-2",
                  "2999-12-31", "25 answers to 36 questions", "2031-05-06", "side: left, right"):  # fmt: skip
        assert known in page
    figure = each_seat(study)[0].figure
    shown = percent_at_most(figure.caught(0.01)).replace(" %", "\xa0%")
    assert page.count(f'>1e-05</td><td data-name="found by any attack">{shown}</td>') == 3
    assert "No useful guarantee for one record of one hospital" in page
    assert "any 3 hospitals" in page
    # A bound is never rounded down: privacy.html shows the same.
    assert f"<td>{at_most(figure.epsilon)}</td>" in re.sub(r' data-name="[^"]*"', "", page)
    assert "No record leaves a hospital: what leaves it is its models&#x27; votes on public queries" in page


def test_what_only_people_know_is_a_blank_under_its_article(study):
    blanks = re.findall(
        r'<p class="blank"><strong>To be written:</strong> (.*?)</p>', officers_file(study, asked=ASKED)
    )
    for article in ("article 6", "article 9", "article 26", "article 28", "articles 13", "article 35(2)", "article 36"):
        assert any(article in blank for blank in blanks), article
    for about in ("Retention", "Numbers of records", "Purpose", "Organisational measures", "Decision"):
        assert any(blank.startswith(about) for blank in blanks), about


def test_names_from_outside_never_become_markup(study):
    hospital = Hospital(name="hospital-1", data_set="<script>alert(1)</script>", lifetime=("<b>",))
    page = officers_file(study, hospital=hospital)
    assert "<script" not in page
    assert "<b>" not in page
