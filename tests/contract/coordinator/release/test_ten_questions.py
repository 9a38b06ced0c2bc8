"""What somebody who has never seen a privacy statement asks: the page alone answers, most of it before any table."""

import json
import re
from html import unescape

import pytest

from coordinator.release.pages import privacy_page

QUESTIONS = {
    "Who is protected?": ("Who is protected: One record of one hospital",),
    "From whom?": ("From whom: Anyone who sees the released labels", "the public, the other hospitals"),
    "How strongly?": ("Weak protection of one record", "wrongly names at least 33 of 10,000 who did not"),
    "What does 5 mean?": ("An epsilon of 5 is weak", "e to the power of epsilon", "one in 50,000"),
    "For how long?": ("This holds for ever", "a release cannot be called back"),
    "Who is not protected?": ("Nobody is protected from the coordinator: it sees every vote in the clear",),
    "What of a patient of two hospitals?": (
        "Patients of several hospitals are protected less",
        "data at 2 of them, whichever these are: epsilon 11.4",
    ),
    "What is kept, and by whom?": (
        "What is keptEach hospital: its records, the models",
        "keeps none rests on a contract",
    ),
    "What at withdrawal, or if a patient objects?": ("from then on it answers no query", "objection are exercised at"),
    "What is not checked, and what must I refuse?": (
        "Verifying the folder cannot show that the noise was drawn as stated",
        "Nobody outside the project has reviewed the software",
        "Refuse a folder whose verification fails",
    ),
    "Which data leave a hospital?": ("No record leaves a hospital: what leaves it is its models' votes",),
    "Who holds which keys?": ("Each hospital's private key is in its own home",),
    "What must I decide?": ("For you to decideOn which legal basis this was done", "The officer's file beside this"),
    "How do I know that it is true?": ("conclave-coordinator verify FOLDER --authority authority.pem",),
}


@pytest.fixture(scope="module")
def words(signed):
    page = (signed[2] / "privacy.html").read_text()
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", page[page.index("<main>") :])))


@pytest.mark.parametrize("question", list(QUESTIONS))
def test_the_page_alone_answers(words, question):
    for answer in QUESTIONS[question]:
        assert answer in words


def test_all_but_one_are_answered_before_the_first_section(words):
    before = words[: words.index("What is protected, and from whom")]
    assert sum(all(answer in before for answer in answers) for answers in QUESTIONS.values()) >= len(QUESTIONS) - 1


def test_a_ledger_that_may_differ_is_named_on_the_page(signed):
    made = json.loads((signed[2] / "privacy.json").read_text())
    assert "7654321" not in privacy_page(made)
    made["during_the_study"]["ledgers_that_may_differ"] = {"hospital-1": 7654321}
    assert "hospital-1: by up to 7654321" in privacy_page(made)
