"""What a record is labelled with: one class, or several findings, and what a study of them says of itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.study.file import read_study, write_study
from protocols.study.findings import OneLabel, SeveralFindings, labelled
from protocols.study.levels import LEVELS
from protocols.study.study import Seat, Study
from protocols.study.votes import UnitSums

NAMES = ("effusion", "mass", "no finding")


def _study(*, signed: bool, names: tuple[str, ...] = NAMES, classes: int) -> Study:
    return Study(
        name="findings",
        classes=classes,
        findings=names,
        votes=UnitSums(
            queries=10, votes=10 if signed else 1, signed=signed, queries_sha256="0" * 64, population=100, sigma=50.0
        ),
        unit="record",
        accountant_name="gaussian_dp",
        quorum=1,
        confidentiality=LEVELS["clear"](units=2**16),
        roster=(Seat(party="a", epsilon=1.0, delta=1e-5, weight=1.0, rate=1.0),),
    )


def test_labels_are_one_class_or_a_row_of_findings() -> None:
    one, several = labelled((), 3), labelled(NAMES, 3)
    assert (one, several) == (OneLabel(3), SeveralFindings(NAMES))
    assert one.known(np.array([0, -1, 2])).tolist() == [True, False, True]
    assert several.known(np.array([[0, -1, 1], [-1, -1, -1]])).tolist() == [True, False]
    for kind, labels in ((one, [3]), (one, [[0]]), (several, [0, 1, 1]), (several, [[0, 1, 2]]), (several, [[0, 1]])):
        with pytest.raises(InvalidInput):
            kind.known(np.array(labels))
    assert [(each.columns(signed=True), each.columns(signed=False)) for each in (one, several)] == [(3, 3), (3, 6)]
    assert [(each.filled(signed=True), each.filled(signed=False)) for each in (one, several)] == [(3, 1), (3, 3)]


@pytest.mark.parametrize("names", [("one",), ("a", "a"), ("a", ""), ("a", " b"), ("a", "b\n"), tuple("ab" * 40)])
def test_names_of_findings_are_checked(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput):
        labelled(names, 2)


def test_a_study_of_findings_has_their_columns_and_a_digest_with_their_names(tmp_path) -> None:
    for signed, classes in ((True, 3), (False, 6)):
        study = _study(signed=signed, classes=classes)
        with pytest.raises(InvalidInput):
            _study(signed=signed, classes=classes + 1)
        (tmp_path / "study.toml").write_text(write_study(study))
        assert read_study(tmp_path / "study.toml") == study
        renamed = replace(study, findings=(*NAMES[:2], "other"))
        assert len({study.digest, renamed.digest, replace(study, findings=NAMES[::-1]).digest}) == 3
        # Nobody is charged for how many findings there are: the vector is as long.
        alone = _study(signed=signed, names=(), classes=2)
        assert study.sensitivity.delta_squared == alone.sensitivity.delta_squared == (4 if signed else 2)


def test_what_one_record_may_send_counts_all_of_its_findings() -> None:
    for signed, filled in ((True, 30), (False, 3)):
        votes = _study(signed=signed, classes=3 if signed else 6).votes
        assert votes.cells_changed("record", labelled=SeveralFindings(NAMES), classes=3) == min(2 * filled, 30)
