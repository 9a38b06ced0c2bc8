"""A bound is charged for the release that it was proved for, whatever a subclass releases."""

from dataclasses import dataclass, field
from math import log, sqrt

import numpy as np
import pytest
from scipy import stats

from protocols.bounds.label_only import ORDERS
from protocols.budgets.accountant import ACCOUNTANTS, accountant, default_accountant
from protocols.errors import InvalidInput
from protocols.mechanisms import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    Lattice,
    LNMax,
    Sensitivity,
    ThresholdedGNMax,
    parameter,
)
from protocols.noise import gaussian, lattice_noise, simulated
from protocols.votes import ABSTAIN
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source

UNIT = Sensitivity.always(np.ones(1), delta_squared=2)
SIGMA, MARGIN = 10.0, 12.0
CONFIDENT = {"sigma": 3.0, "sigma_threshold": 4.0, "threshold": 5.0}
INTERACTIVE = {**CONFIDENT, "interactive_threshold": 1.0, "reinforce_confidence": 0.9, "round_one": 5}


def by_margin(self, counts, noise, *, view, predictions=None, total_weight=None):
    """The leading class where it leads by a margin of noisy votes."""
    noisy = self.noisy(counts, noise, view=view)
    ranked = np.sort(noisy, axis=1)
    return np.where(ranked[:, -1] - ranked[:, -2] >= MARGIN, noisy.argmax(axis=1), ABSTAIN)


def of_bare_counts(self, counts, noise, *, view, predictions=None, total_weight=None):
    return counts.argmax(axis=1)


def subclass(*bases, **changed):
    return dataclass(frozen=True, kw_only=True)(type("Changed", bases, {"name": "changed", **changed}))


def exact_margin_rdp(order):
    """The dearest move of one vote, in either direction: the law of a difference of two noisy counts."""
    ends = [-np.inf, -MARGIN, MARGIN, np.inf]
    worst = 0.0
    for difference in np.arange(-30, 31):
        p, q = (np.diff(stats.norm.cdf(ends, loc=difference + move, scale=sqrt(2) * SIGMA)) for move in (-1, 1))
        for a, b in ((p, q), (q, p)):
            worst = max(worst, log((a**order * b ** (1 - order)).sum()) / (order - 1))
    return worst


def tightest(mechanism, *, secret_coins=False):
    on_lattice = mechanism.lattice is not None
    return accountant(mechanism.holding(view="label", on_lattice=on_lattice, secret_coins=secret_coins)[0])


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_a_margin_of_noisy_votes_is_charged_no_less_than_its_exact_cost(order):
    """The bound for the argmax of two classes would be below it."""
    changed = subclass(GNMax, release=by_margin)(sigma=SIGMA)
    account = tightest(changed)
    cost = account.query_cost(changed, UNIT, view="label", classes=2)
    at = int(np.abs(ORDERS - order).argmin())
    exact = exact_margin_rdp(ORDERS[at])
    label_only = GNMax(sigma=SIGMA).label_only_rdp(UNIT, ORDERS, classes=2).ask[0, at]
    assert label_only < exact <= (cost.ask + cost.answer)[0, at]


@pytest.mark.parametrize("secret_coins", [False, True])
@pytest.mark.parametrize("lattice", [None, Lattice(units=64, shares=1, classes=2)])
@pytest.mark.parametrize(("base", "given"), [(GNMax, {}), (ThresholdedGNMax, {"threshold": 3.0})])
def test_a_changed_release_is_charged_as_the_noisy_histogram(base, given, lattice, secret_coins):
    changed = subclass(base, release=by_margin)(sigma=SIGMA, **given).on_lattice(lattice)
    unit = Sensitivity(np.ones(1), np.full(1, 0.25), delta_squared=2) if secret_coins else UNIT
    for name in ("label_only", "exact_composition"):
        with refuses(InvalidInput, name):
            accountant(name).check(changed, "label", secret_coins=secret_coins)
    account = tightest(changed, secret_coins=secret_coins)
    cost = account.query_cost(changed, unit, view="label", classes=2)
    assert cost.ask.tolist() == changed.noise_rdp(unit, ORDERS, view="histogram").ask.tolist()


@pytest.mark.parametrize("base", [GNMax, LNMax])
def test_a_release_that_reads_the_counts_themselves_is_handed_noisy_ones(base):
    """It is charged as a function of them, so it is one."""
    plain = base(**{name: SIGMA if name == "sigma" else 0.1 for name in base.parameters()})
    changed = subclass(base, release=of_bare_counts)(**plain.values)
    counts = np.tile([3.0, 2.0, 0.0], (200, 1))
    released = changed.labels(counts, simulated(np.random.default_rng(5)), view="label")
    assert released.tolist() == plain.labels(counts, simulated(np.random.default_rng(5)), view="label").tolist()
    assert len(set(released.tolist())) == 3


def test_noise_that_a_changed_release_draws_for_itself_is_none():
    def own_noise(self, counts, noise, *, view, predictions=None, total_weight=None):
        return (counts + gaussian(noise, counts.shape, sigma=1e6)).argmax(axis=1)

    lattice = Lattice(units=64, shares=1, classes=2)
    changed = subclass(GNMax, release=own_noise)(sigma=1.0, lattice=lattice)
    counts = np.tile([40.0, 0.0], (50, 1))
    assert not changed.labels(counts, lattice_noise(seeded_source(3), units=64), view="label").any()
    assert not changed.labels(counts, simulated(np.random.default_rng(3)), view="label").any()


@pytest.mark.parametrize(
    ("base", "given", "changes"),
    [
        (GNMax, {"sigma": 3.0}, ("noisy",)),
        (GNMax, {"sigma": 3.0}, ("release", "noisy")),
        (GNMax, {"sigma": 3.0}, ("labels",)),
        (LNMax, {"gamma": 0.1}, ("noisy",)),
        (ThresholdedGNMax, {"sigma": 3.0, "threshold": 2.0}, ("noisy",)),
        (ConfidentGNMax, CONFIDENT, ("release",)),
        (ConfidentGNMax, CONFIDENT, ("release_where",)),
        (InteractiveGNMax, INTERACTIVE, ("release",)),
        (InteractiveGNMax, INTERACTIVE, ("offsets",)),
    ],
)
def test_a_release_for_which_nothing_is_proved_is_refused(base, given, changes):
    changed = subclass(base, **dict.fromkeys(changes, of_bare_counts))(**given)
    with refuses(InvalidInput, "accountant"):
        default_accountant(changed, "label")
    for each in ACCOUNTANTS.values():
        with refuses(InvalidInput, "accountant"):
            each.query_cost(changed, UNIT, view="label", classes=2)


@pytest.mark.parametrize(
    ("other", "given"), [(ThresholdedGNMax, {"sigma": 3.0, "threshold": 2.0}), (ConfidentGNMax, CONFIDENT)]
)
def test_a_release_that_comes_from_a_second_parent_is_not_charged_the_first_ones_bound(other, given):
    """GNMax defines no release of its own, so the other one's comes first; Confident-GNMax's draws twice."""
    changed = subclass(GNMax, other)(**given)
    assert type(changed).release is other.release
    for name in ("label_only", "exact_composition"):
        with refuses(InvalidInput, name):
            accountant(name).check(changed, "label", secret_coins=False)
    counts = np.tile([3.0, 2.0, 0.0], (200, 1))
    shown = changed.noisy(counts, simulated(np.random.default_rng(5)), view="label")
    released = changed.labels(counts, simulated(np.random.default_rng(5)), view="label")
    assert (released[released != ABSTAIN] == shown.argmax(axis=1)[released != ABSTAIN]).all(), "of the noisy counts"


def test_an_interactive_mechanism_of_a_changed_first_round_is_refused():
    def changed_round(self):
        return subclass(ConfidentGNMax, release_where=of_bare_counts)(**CONFIDENT)

    changed = subclass(InteractiveGNMax, _confident=property(changed_round))(**INTERACTIVE)
    with refuses(InvalidInput, "accountant"):
        default_accountant(changed, "label")


def test_whoever_proves_a_bound_of_his_own_release_is_charged_by_it():
    def margin_rdp(self, sensitivity, orders, *, classes):
        return GNMax.label_only_rdp(
            self, Sensitivity.always(2 * sensitivity.votes, delta_squared=2), orders, classes=max(classes, 3)
        )

    stated = subclass(GNMax, release=by_margin, label_only_rdp=margin_rdp)(sigma=SIGMA)
    assert tightest(stated).name == "label_only"
    further = subclass(type(stated), release=of_bare_counts)(sigma=SIGMA)
    assert tightest(further).name == "gaussian"


def test_a_subclass_that_changes_words_and_parameters_alone_keeps_every_bound():
    same = subclass(
        GNMax,
        __annotations__={"sigma": float},
        sigma=field(metadata=parameter("the noise", unit="votes", role="noise", default=0.3)),
        released_words=lambda self, *, total_weight: "the class with the most noisy votes",
    )(sigma=SIGMA)
    assert tightest(same).name == "exact_composition"
    assert default_accountant(same, "histogram").name == "gaussian_dp"
