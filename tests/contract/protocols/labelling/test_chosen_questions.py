"""A study whose questions are chosen between batches: what is refused, and what a release shows of it."""

from dataclasses import replace

import numpy as np
import pytest

from coordinator.release.charges import check_charges
from coordinator.release.evidence import collect
from protocols.errors import DataCorrupt, InvalidInput
from protocols.labelling.questions import check_choose, next_questions
from protocols.votes import NOT_ASKED
from tests.harness.refusals import refuses
from tests.harness.released import Consortium, small_study
from tests.harness.studies import make_study


def last_first(labels, left, size):
    return left[::-1][:size]


@pytest.mark.parametrize(
    ("questions", "choose", "said"),
    [("uncertainty", None, ("questions", "uncertainty")), ("given", last_first, ("questions", "given", "uncertainty"))],
)
def test_who_chooses_is_the_studys_affair(questions, choose, said) -> None:
    with refuses(InvalidInput, *said):
        check_choose(make_study([1.0], questions=questions), choose)


@pytest.mark.parametrize("chosen", [[4, 5], [1, 5, 6], [5, 5, 6], [5, 6, 10], []])
def test_a_choice_of_other_than_so_many_open_questions_is_refused(chosen: list[int]) -> None:
    labels, asked = np.full(10, NOT_ASKED), np.arange(10) < 2
    with refuses(InvalidInput, len(chosen), 3):
        next_questions(lambda labels, left, size: np.array(chosen, np.int64), labels, asked, 3)
    assert next_questions(last_first, labels, asked, 3).tolist() == [7, 8, 9]
    assert next_questions(None, labels, asked, 3).tolist() == [2, 3, 4]


def test_the_charges_of_chosen_questions_are_checked_and_a_question_twice_is_found(tmp_path) -> None:
    study = small_study(questions="uncertainty", batch_limit=5)
    labelled = Consortium(tmp_path).label(study, choose=last_first)
    evidence = collect(labelled.ledger, study=study.digest)
    assert evidence.charges[0].queries == (31, 32, 33, 34, 35)
    check_charges(study, labelled.labels, evidence)
    first, second, *others = evidence.charges
    for wrong in ((30, *second.queries[1:-1], 31), second.queries[::-1], (*second.queries[:-1], 36)):
        forged = replace(evidence, charges=(first, replace(second, queries=wrong), *others))
        with refuses(DataCorrupt, "batch 1"):
            check_charges(study, labelled.labels, forged)
    with refuses(DataCorrupt, "batch 0"):
        check_charges(study.voting(questions="given"), labelled.labels, evidence)
