"""What a study between organisations refuses, that a simulation may have."""

from dataclasses import replace
from pathlib import Path

from protocols.errors import InvalidInput
from protocols.study.file import read_study, write_study
from protocols.study.levels import Clear
from tests.harness.deployed_records import record_study_of
from tests.harness.refusals import refuses
from tests.harness.studies import deployed_study

# Float64 noise changes a label with a probability of 7e-12 in 1,000 queries, which (1 + e^20) makes 0.003 of delta.
NEEDS_MORE_DELTA = {"mechanism": "gnmax", "sigma": 2.0, "sigma_threshold": None, "threshold": None}
HISTOGRAM = NEEDS_MORE_DELTA | {"view": "histogram", "account": "gaussian", "queries": 1000, "epsilon": 20.0}


def test_no_view_escapes_the_delta_that_float_noise_needs() -> None:
    """A coordinator wrote "histogram" in place of "label": nothing was set aside, by study or lifetime cap."""
    with refuses(InvalidInput, "a larger delta"):
        _ = deployed_study(**HISTOGRAM | {"view": "label"}).budgets
    with refuses(InvalidInput, "histogram"):
        deployed_study(**HISTOGRAM)


def test_integer_noise_may_be_accounted_for_by_the_histogram() -> None:
    study = deployed_study(**HISTOGRAM, confidentiality=Clear(units=64))
    assert study.lattice is not None
    with refuses(InvalidInput, "units"):
        replace(study, confidentiality=Clear())


def test_a_hospital_has_one_display_name_in_any_script_that_no_other_has(tmp_path: Path) -> None:
    study = deployed_study()
    first, other, *rest = study.roster
    long = "Universitätsklinikum 東京 – " + "Klinik für Kardiologie " * 20
    named = replace(study, roster=(replace(first, display_name=long.strip()), other, *rest))
    assert named.named(first.party) == f"{long.strip()} ({first.party})"
    assert named.named(other.party) == other.party
    (tmp_path / "study.toml").write_text(write_study(named), encoding="utf-8")
    assert read_study(tmp_path / "study.toml") == named
    assert named.digest != study.digest
    for two in ((" ", None), ("right\u202eto left", None), ("a" * 501, None), ("the same", "the same")):
        roster = tuple(replace(seat, display_name=name) for seat, name in zip((first, other), two, strict=True))
        with refuses(InvalidInput, "display_name"):
            replace(study, roster=(*roster, *rest))


def test_hospitals_together_may_declare_no_more_units_than_the_study_has() -> None:
    study, _ = record_study_of()
    whole, seats = study.votes.population, len(study.roster)
    shares = [whole - seats + 1, *[1] * (seats - 1)]
    replace(study, roster=tuple(replace(seat, population=n) for seat, n in zip(study.roster, shares, strict=True)))
    shares[1] = 2
    with refuses(InvalidInput, whole + 1, whole):
        replace(study, roster=tuple(replace(seat, population=n) for seat, n in zip(study.roster, shares, strict=True)))
