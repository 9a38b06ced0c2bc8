"""Settings and study of `ask`: what is refused before anything is trained, and what the study promises."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.mechanisms import MECHANISMS, GNMax
from protocols.reading import read_toml
from protocols.study.levels import TwoServer
from simulations.ask.kinds import askable
from simulations.ask.report import rule_words, statements
from simulations.ask.settings import AskSettings, ask_settings, write_ask_config
from simulations.ask.stages import ask_study


def test_the_file_gives_the_settings_back(tmp_path) -> None:
    settings = ask_settings(parties=50, skew=0.5, models=("mlp", "small_cnn"), seeds=(0, 3), budgets=4, baselines=False)
    (tmp_path / "config.toml").write_text(write_ask_config(settings))
    assert ask_settings(**read_toml(tmp_path / "config.toml")) == settings
    assert AskSettings() == ask_settings()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"queriers": 51}, "queriers is 51; allowed: 1 to the 50 parties"),
        (
            {"models": ("random_forest",)},
            "random_forest.*private inference computes it: logistic_regression, mlp, small_cnn",
        ),
        ({"models": ("mlp", "mlp")}, "each kind once"),
        ({"quorum": 50}, "quorum is 50; allowed: 1 to 49"),
        ({"skew": 0.0}, "dirichlet"),
        ({"turn": 0}, "turn is 0"),
        ({"view": "histogram"}, "unknown setting 'view'"),
        ({"budgets": "no"}, "budgets"),
        ({"units": 63}, "units is 63; allowed: a power of two"),
        ({"units": 2}, "sigma"),
        ({"sigma": 1e9}, "ring|2\\*\\*30|below"),
        ({"mechanism": "lnmax"}, "mechanism is 'lnmax'"),
    ],
)
def test_what_does_not_go_together_is_one_clear_error(wrong, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        _ = ask_study(ask_settings(**{"parties": 50, **wrong}), classes=10)[1].budgets


def test_a_mechanism_that_two_servers_can_compute_can_be_asked_by_its_name_alone(monkeypatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Installed(GNMax):
        name: ClassVar[str] = "installed"

    @dataclass(frozen=True, kw_only=True)
    class ReleasesMore(Installed):
        name: ClassVar[str] = "releases_more"

        def noisy(self, counts, noise, *, view):
            return counts

    assert list(askable()) == ["gnmax", "thresholded_gnmax"]
    monkeypatch.setitem(MECHANISMS._built_in, "releases_more", ReleasesMore)
    monkeypatch.setitem(MECHANISMS._built_in, "installed", Installed)
    assert all(TwoServer.takes(kind) for kind in askable().values())
    settings = ask_settings(parties=50, budgets=4, mechanism="installed")
    assert ask_study(settings, classes=10)[1].mechanism.name == "installed"
    for mechanism in ("confident_gnmax", "interactive_gnmax", "releases_more"):
        with pytest.raises(
            InvalidInput, match=f"mechanism is '{mechanism}'; allowed: gnmax, thresholded_gnmax, installed"
        ):
            ask_settings(mechanism=mechanism)


@pytest.mark.parametrize("weights", ["uniform", "proportional", "exhaustive"])
@pytest.mark.parametrize("mechanism", ["gnmax", "thresholded_gnmax"])
def test_the_study_is_two_server_on_the_lattice_and_label_only(weights, mechanism) -> None:
    settings = ask_settings(parties=100, budgets="1:0.5,4:0.5", weights=weights, mechanism=mechanism)
    budgets, study = ask_study(settings, classes=10)
    assert (study.view, study.accountant_name, study.confidentiality.name) == ("label", "label_only", "two_server")
    assert (study.mechanism.lattice.units, study.mechanism.lattice.shares) == (64, 1)
    assert np.array_equal(study.weights * 64, np.rint(study.weights * 64))
    assert (study.budgets.epsilon_guaranteed <= budgets.epsilon + 1e-9).all()


def test_very_large_budgets_need_no_delta_for_float64_noise() -> None:
    """At epsilon 20 a study with real-valued noise would be refused."""
    _, study = ask_study(ask_settings(parties=50, budgets="10:0.5,20:0.5"), classes=10)
    assert study.budgets.affordable(np.zeros(50, dtype=np.int64), limit=10**6).min() > 100


def test_statements_say_who_is_protected_against_whom_and_only_caps_have_an_epsilon() -> None:
    _, study = ask_study(ask_settings(parties=50, budgets="2"), classes=10)
    said = statements(study, queriers=3)
    epsilon = study.budgets.epsilon_guaranteed.max()
    assert all(one.epsilon in (None, epsilon) for one in said)
    assert "all 3 querying parties together, colluding" in said[0].against
    assert any("guardian" in one.against and one.epsilon is not None and "collude" in one.words for one in said)
    assert any("own labelled records" in one.protected and one.epsilon is None for one in said)
    assert "one record" in said[0].protected
    _, party = ask_study(ask_settings(parties=50, budgets="2", unit="party"), classes=10)
    assert "all data" in statements(party, queriers=1)[0].protected
    assert "same number of queries" in rule_words(study, queriers=3)
