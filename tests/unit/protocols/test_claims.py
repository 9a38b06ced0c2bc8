"""Claims: over every level, unit, view and participation, no sentence says more than the study gives."""

import re
from dataclasses import replace
from itertools import product
from math import inf

import pytest

from protocols.claims.coverage import (
    caveats,
    charged,
    not_covered_by_approval,
    not_covered_by_release,
    promise,
    publishable,
    used_once,
)
from protocols.claims.in_short import in_short
from protocols.claims.languages import number, sees_votes, unprotected
from protocols.claims.protection import LEVEL_WORDS, Protection
from protocols.claims.strength import Figure
from protocols.claims.who_sees import (
    guardian_sees,
    noise_added,
    not_covered_by_guardian,
    not_protected_from,
    who_saw_what,
    who_sees_votes,
)
from protocols.errors import InvalidInput
from tests.harness.refusals import refuses

EPSILONS = {"hospitals": (1.0, 8.0), "known_to": (8.0, 17.5, inf)}


def study_of(level, unit="record", view="label", *, secret=False, pooled=False):
    return Protection(
        level=level,
        unit=unit,
        view=view,
        adjacency="replace-one",
        asks="hospital-q" if level == "hidden_queries" else "the coordinator",
        guardian="notary" if level in ("two_server", "hidden_queries") else "",
        colluders=2 if level == "secure_sum" else 0,
        secret=secret,
        pooled=pooled,
    )


ALL = [
    study_of(level, unit, view, secret=secret, pooled=pooled)
    for level, unit, view, secret, pooled in product(
        LEVEL_WORDS, ("record", "party"), ("label", "histogram"), (False, True), (False, True)
    )
]

OF_RECORDS = [
    replace(study_of(level, view="histogram"), unit=unit, votes="record", residuals=residuals)
    for level, unit, residuals in product(
        ("clear", "secure_sum", "two_server"), ("record", "patient", "party"), (False, True)
    )
]


def name_of(study):
    more = ["secret"] * study.secret + ["pooled"] * study.pooled + ["twice"] * study.residuals
    return "-".join([study.level, study.unit, study.view, *more])


def said_of(study):
    """All that anybody is told of a study."""
    lines = [not_protected_from(study), who_sees_votes(study), study.unit_in_words, study.view_in_words]
    lines += not_covered_by_release(study) + not_covered_by_approval(study, patient_named=False)
    lines += [" ".join(each) for each in caveats(study)] + [promise(study, Figure(1.0, 1e-5))]
    if study.level != "hidden_queries":
        lines += [text for row in who_saw_what(study, coordinator="centre") for text in row.values()]
    if study.guarded:
        lines += [guardian_sees(study), *not_covered_by_guardian(study)]
    return "\n".join(lines)


def test_no_sentence_claims_more_than_the_level_gives(subtests):
    for study in ALL:
        with subtests.test(name_of(study)):
            said = said_of(study)
            hides_votes = ("No vote of a single hospital", "noisy sums of all votes and no vote", "nobody sees a vote")
            if study.level == "clear":
                assert not any(claim in said for claim in hides_votes)
                assert "it sees every vote in the clear" in said
                assert "none by differential privacy" in said
            else:
                assert "it answered; which hospital was absent" not in said
            # Whatever hides a vote is said with whom it does not hide it from.
            assert ("collude" in said) == (study.level != "clear")
            assert ("guardian" in said) == study.guarded
            assert ("computational" in said) == study.guarded
            assert ("nobody sees a vote, unless" in said) == study.guarded
            assert ("more than 2 hospitals" in said) == (study.level == "secure_sum")
            assert ("the models that answered" in said) == (study.level == "hidden_queries")


def test_no_sentence_claims_more_than_unit_and_view_give(subtests):
    for study in ALL:
        with subtests.test(name_of(study)):
            said = said_of(study)
            assert ("all data of one hospital" in said) == (study.unit == "party")
            assert ("moves one vote" in said) == (study.unit == "record" and not study.pooled)
            assert ("may be learned by several teachers" in said) == (study.unit == "record" and study.pooled)
            one_by_one = "elsewhere only each record on its own is covered"
            assert (one_by_one in said) == (study.unit == "record")
            assert ("anyone who sees the released labels" in said) == (study.view == "label")
            assert ("anyone who sees the noisy counts" in said) == (study.view == "histogram")
            assert ("It holds against whoever sees the labels" in said) == (study.view == "label")


def test_secret_participation_rests_on_secret_coins_and_a_patient_of_several_hospitals_is_never_covered(subtests):
    for study in ALL:
        with subtests.test(name_of(study)):
            said = said_of(study)
            assert ("coins that only the hospital sees" in said) == study.secret
            assert "no single hospital's epsilon covers that patient" in said
            assert "covered by no single hospital's ε" in said


def test_what_a_server_that_departs_from_the_protocol_can_do_is_said_to_hospitals_and_to_the_guardian(subtests):
    for study in [each for each in ALL if each.guarded]:
        with subtests.test(name_of(study)):
            for said in (not_protected_from(study), " ".join(not_covered_by_guardian(study))):
                assert "With one hospital's help it can shift the counts and so flip labels, unnoticed" in said
                assert "its own noise in one query, unnoticed with probability 1/4" in said
                assert "at most a function of the noisy counts, with the other server's noise" in said
                assert f"up to epsilon {study.counts_epsilon:.3g}; the figures charge labels" in said
            assert "honest hospitals' votes refused" in not_covered_by_guardian(study)[1]


def test_where_queries_are_hidden_a_hospital_is_told_what_a_wrong_dealer_and_a_wrong_asker_do(subtests):
    for study in [each for each in ALL if each.level == "hidden_queries"]:
        with subtests.test(name_of(study)):
            for said in (not_protected_from(study), " ".join(not_covered_by_guardian(study))):
                assert "vote on something that is not the query" in said
                assert "one vote" in said


def test_public_queries_are_named_as_unprotected_only_where_queries_are_public():
    for study in ALL:
        told = any(line.startswith("The public queries") for line in not_covered_by_release(study))
        assert told == (study.level != "hidden_queries")


def test_where_the_file_names_the_patients_column_the_approval_does_not_say_it_is_missing():
    for study in ALL:
        assert not any("data.patient is not set" in line for line in not_covered_by_approval(study, patient_named=True))


def test_an_epsilon_promises_that_some_are_accused_wrongly_and_a_large_one_hardly_anybody():
    study = study_of("two_server")
    assert "Strong: whoever rightly names 50 of 100 who took part wrongly names at least 18" in promise(
        study, Figure(1.0, 1e-5)
    )
    assert "Weak: " in promise(study, Figure(8.0, 1e-5))


def test_nothing_is_said_of_a_level_unit_or_view_that_is_not_known():
    for level, unit, view in (("open", "record", "label"), ("clear", "person", "label"), ("clear", "record", "votes")):
        with refuses(InvalidInput, "allowed"):
            study_of(level, unit, view)


def test_a_study_without_a_guardian_or_without_a_release_has_no_sentences_about_one():
    with refuses(InvalidInput, "guardian"):
        guardian_sees(study_of("secure_sum"))
    with refuses(InvalidInput, "guardian"):
        not_covered_by_guardian(study_of("clear"))
    with refuses(InvalidInput, "release"):
        who_saw_what(study_of("hidden_queries"), coordinator="centre")


def test_outcomes_are_believed_only_where_a_query_that_is_not_answered_costs_less():
    settles = study_of("clear")
    one_price, of_records = replace(settles, settles=False), replace(OF_RECORDS[0], settles=False)
    assert "believes the coordinator's signed outcomes" in publishable(settles)
    assert "A query that is not answered costs less." in charged(settles)
    for study in (one_price, of_records):
        assert "no node has to believe one" in publishable(study)
        assert "no outcome, true or false, changes a charge" in charged(study)
    assert "Every query costs the same, answered or not." in charged(one_price)


def test_where_records_vote_nothing_is_said_of_teachers_abstentions_or_a_label_that_was_refused(subtests):
    for study in OF_RECORDS:
        with subtests.test(name_of(study)):
            said = said_of(study)
            assert not re.search("teacher|refused,|which queries|every vote in|flip labels", said)
            assert ("twice" if study.residuals else "once") + " in the whole study" in said
            assert ("all records of one patient at one hospital" in said) == (study.unit == "patient")
            assert ("A patient with several records is not covered" in said) == (study.unit == "record")
            assert ("all data of one hospital" in said) == (study.unit == "party")
            assert ("sum of each hospital's records' votes in the clear" in said) == (study.level == "clear")
            assert ("any vector" in said) == (study.level == "secure_sum")
            assert ("computational" in said) == (study.level == "two_server")


@pytest.mark.parametrize(
    ("unit", "whose"), [("record", "Each record's data are"), ("patient", "Each patient's data are")]
)
def test_what_an_epsilon_means_where_records_vote_is_said_once_and_for_ever(unit, whose):
    study = Protection(
        level="clear", unit=unit, view="histogram", adjacency="replace-one", asks="the coordinator", votes="record"
    )
    said = used_once(study, Figure(0.5, 1e-6))
    assert said.startswith(f"{whose} used once, in one noisy sum, and this costs at most epsilon 0.5 at delta 1e-06")
    assert "for ever" in said
    assert "at most epsilon 0.501 at" in used_once(study, Figure(0.5001, 1e-6))
    with refuses(InvalidInput, "teachers"):
        used_once(replace(study, votes="teacher", unit="record"), Figure(1.0, 1e-6))


def test_of_a_seat_that_did_not_vote_it_is_not_said_that_its_data_were_used():
    absent = used_once(OF_RECORDS[0], Figure(0.5, 1e-6), voted=False)
    assert absent != used_once(OF_RECORDS[0], Figure(0.5, 1e-6))
    assert "epsilon" not in absent
    assert "once" not in absent


def test_the_noise_that_is_stated_is_what_both_servers_add_and_the_figures_count_on_one():
    assert "Each of the two servers adds noise of its own" in noise_added(study_of("two_server"), votes=8.485)
    assert "together 8.485 votes" in noise_added(study_of("two_server"), votes=8.485)
    assert "The coordinator adds all of the noise: 6 votes" in noise_added(study_of("clear"), votes=6.0)
    assert "Each hospital adds a part" in noise_added(study_of("secure_sum"), votes=7.0)


def test_in_short_says_who_is_protected_from_whom_how_strongly_who_is_not_what_is_unchecked_and_more(subtests):
    for study in [each for each in ALL if each.level != "hidden_queries"] + OF_RECORDS:
        with subtests.test(name_of(study)):
            figures = {name: [Figure(each, 1e-5) for each in given] for name, given in EPSILONS.items()}
            short = in_short(study, **figures)
            points, more = short["points"], short["more"]
            assert short["verdict"].startswith("No useful guarantee for one")
            assert "at most 99.97 % of the time" in short["verdict"]
            assert list(points) == [
                "Who is protected", "From whom", "How strong", "Who is not protected",
                "What is not checked, and what to refuse",
            ]  # fmt: skip
            assert sum(len(each.split()) for each in points.values()) < 420
            assert "epsilon 1 to 8" in points["Who is protected"]
            assert "one in 50,000" in more["By how much odds move"]
            assert "16 of 100,000" in points["How strong"]
            assert "data at 2 of them, whichever these are: epsilon 17.5, weak" in points["Who is not protected"]
            assert "data at 3 of them: no guarantee" in points["Who is not protected"]
            assert not_protected_from(study) in points["Who is not protected"]
            assert ("it sees" in more["What is kept"]) == (study.level == "clear")
            assert ("The guardian:" in more["What is kept"]) == study.guarded
            assert ("which the coordinator reads" in more["What leaves a hospital"]) == (study.level == "clear")
            assert ("The guardian's keys" in more["Who holds which keys"]) == study.guarded
            assert ("guardian" in more["Who objects or withdraws"]) == study.guarded


def test_each_language_says_the_same_figures_of_every_study_and_nothing_in_english(subtests):
    figures = {name: [Figure(each, 1e-5) for each in given] for name, given in EPSILONS.items()}
    more = [replace(each, hospitals=2, declared=True) for each in OF_RECORDS]
    for study in [each for each in ALL if not each.pooled] + OF_RECORDS + more:
        with subtests.test(name_of(study)):
            short = in_short(study, **figures)
            brief = {each: [unprotected(each, study), sees_votes(each, study)] for each in ("en", "de")}
            german = short["languages"]["de"]
            assert len(german["points"]) == len(short["points"])
            pairs = [(short["verdict"], german["verdict"]), *zip(brief["en"], brief["de"], strict=True)]
            pairs += zip(short["points"].values(), german["points"].values(), strict=True)
            for english, said in pairs:
                found = [re.findall(r"\d[\d.,]*(?<=\d)", each) for each in (english, number("de", said))]
                assert sorted(found[0]) == sorted(found[1])
                assert "{" not in said
                assert not re.search(r"\b(the|of|any|and|is|which|guess)\b", said)
