"""What a level cannot carry is refused when the study is made."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from protocols.errors import InvalidInput
from protocols.mechanisms import ConfidentGNMax, ThresholdedGNMax
from protocols.mechanisms.interactive_gnmax import InteractiveGNMax
from tests.harness.levels import lattice_study, secure_sum, two_server
from tests.harness.private_models import hidden_study
from tests.harness.refusals import refuses


def test_privacy_groups_are_refused_where_colluders_are_counted_in_parties():
    study = lattice_study(secure_sum())
    roster = tuple(replace(seat, party=f"a/{number}") for number, seat in enumerate(study.roster))
    with refuses(InvalidInput, "privacy group"):
        replace(study, roster=roster)


def test_secret_coins_need_abstentions_that_nobody_sees():
    rates = [0.5] * 6
    with refuses(InvalidInput, "coin"):
        lattice_study(two_server(abstention=False), participation="secret", rates=rates)
    assert lattice_study(two_server(abstention=True), participation="secret", rates=rates).lattice is not None


@pytest.mark.parametrize(
    ("level", "more", "message"),
    [
        (two_server(), {"classes": 20_000, "sigma": 200.0}, "at most 10000"),
        (two_server(), {"queries": 2_000_000, "batch_limit": 2_000_000}, "smaller batch_limit"),
        (replace(two_server(), sealing_key="00" * 32), {}, "no usable X25519 key"),
        (replace(two_server(), guardian="p3"), {}, "another organisation"),
        (secure_sum(), {"queries": 2**25, "batch_limit": 2**25}, "counts in a batch"),
        (secure_sum(colluders=5), {}, "below the quorum"),
    ],
)
def test_a_study_that_its_level_cannot_carry_is_refused(level, more, message):
    with pytest.raises(InvalidInput, match=message):
        lattice_study(level, **more)


@dataclass(frozen=True, kw_only=True)
class Apart(ThresholdedGNMax):
    """One of another distribution, which releases something else and says nothing of it."""

    name: ClassVar[str] = "apart"

    def release(self, counts, noise, *, view, predictions=None, total_weight=None):
        raise NotImplementedError


APART = {"sigma": 3.0, "threshold": 2.5}


@pytest.mark.parametrize("level", [two_server(), hidden_study().confidentiality], ids=["two_server", "hidden_queries"])
@pytest.mark.parametrize(
    "mechanism",
    [
        ConfidentGNMax(**APART, sigma_threshold=3.0),
        InteractiveGNMax(
            **APART, sigma_threshold=3.0, interactive_threshold=1.0, reinforce_confidence=0.9, round_one=5
        ),
        Apart(**APART),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_with_a_guardian_an_outcome_is_a_function_of_one_noisy_histogram(level, mechanism):
    """A server that shifts its share of the counts would learn more than any noise covers from another."""
    study = hidden_study() if level.asked_by else lattice_study(level)
    message = f"mechanism is '{mechanism.name}'; allowed at level '{level.name}': thresholded_gnmax"
    with pytest.raises(InvalidInput, match=message):
        study.voting(mechanism=mechanism)


def test_a_ring_that_is_too_small_is_refused_in_the_words_of_the_file():
    with refuses(InvalidInput, "units = 64", "6 votes"):
        lattice_study(two_server(), sigma=1e6)


def test_a_seat_without_a_key_is_refused_where_parties_sign():
    level = secure_sum()
    first, second, *others = level.seat_keys
    for keys, message in (
        (("", second, *others), "signing_key of 'p0'"),
        ((second, second, *others), "signing_key of 'p1' is that of 'p0' too"),
        ((first, second), "2 keys of seats"),
    ):
        with pytest.raises(InvalidInput, match=message):
            lattice_study(replace(level, seat_keys=keys))
