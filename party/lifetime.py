"""One cap for the life of a data set: what all studies of all coordinators together may learn about one unit.

Each study is itself a filter: whatever is asked, its ledger stops before the cap at its own order. A second filter runs
over all studies. Its order is fixed when the first study is approved, from that study's public terms, and never
changes: a Renyi filter is then valid even though later studies are chosen after earlier releases were seen
(docs/explanation/mathematics.md, section 9; Feldman & Zrnic 2021, arXiv 2008.11193, Thm 4.5). Besides the orders of
Renyi DP there is one more currency, mu squared of Gaussian DP (Smith & Thakurta 2022, arXiv 2210.17520); its "order" is
NaN. The guarantee is the cap, (epsilon, delta) for everything that is ever released; adjacency replace-one.

float64 noise is not ideal noise, and the difference costs delta. How much delta is set aside for it is fixed with the
first study too: an allowance that shrank as later studies are approved, after earlier releases were seen, would be an
odometer in delta (proof and counterpart: the same section).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import ceil, floor

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from protocols.bounds.gaussian import gdp_epsilon, gdp_mu
from protocols.bounds.label_only import ORDERS
from protocols.bounds.rdp import check_budget, epsilon_to_rdp, rdp_to_epsilon
from protocols.budgets.accountant import GaussianDp, accountant
from protocols.budgets.filter import NANO, cap_nano, noise_reserve
from protocols.claims.coverage import COUNTED_LIFETIME
from protocols.errors import InvalidInput, Refused
from protocols.mechanisms import Sensitivity, check_view
from protocols.plural import at_least, at_most
from protocols.refusals.code import Code
from protocols.study.study import Study, party_of

# The units in which a lifetime filter may count: RDP at one of these orders, or (NaN) mu squared of Gaussian DP.
CURRENCIES: Float64[ndarray, " currencies"] = np.append(ORDERS, np.nan)
# Costs are rounded up by this relative margin, which covers the rounding of intermediate float64 products.
_MARGIN = 1e-12
_LARGEST = 2.0**62
# The share of delta for float64 rounding: at least this, or this many times what the first study needs, up to a half.
_NOISE_SHARE, _NOISE_COPIES = 0.01, 8
_FIXED_POINT_STEPS = 100
_GRID = 514
# What no message advises to go beyond: such a cap protects nobody.
_LARGEST_EPSILON = 100


@dataclass(frozen=True)
class LifetimeCap:
    """What a hospital allows for the life of a data set: epsilon > 0 and delta in (0, 1)."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_budget(np.array([self.epsilon]), np.array([self.delta]))

    def affords(self, noise_distance: float) -> Float64[ndarray, " currencies"]:
        """The spend that the cap allows in each of CURRENCIES; <= 0 where an order cannot meet the cap.

        noise_distance: total variation t between all noise drawn and ideal noise. If M' is within t of M, (e, delta')
        of M gives (e, delta' + (1 + exp(e)) t) of M', so that much is taken off delta first. Any e up to epsilon may be
        converted at, as (e, delta) is (epsilon, delta) too; each currency takes the one that allows it most, so a
        larger cap never allows less.
        """
        return _afforded(self, noise_distance)


@cache
def _afforded(cap: LifetimeCap, noise_distance: float) -> Float64[ndarray, " currencies"]:
    spend = np.full_like(CURRENCIES, -np.inf)
    at = np.minimum(cap.epsilon, _best_epsilon(cap.delta, noise_distance))
    left = cap.delta - (1.0 + np.exp(np.minimum(at, 700.0))) * noise_distance
    usable = (at > 0) & (left > 0)
    renyi, gaussian = usable[:-1], usable[-1:]
    spend[:-1][renyi] = epsilon_to_rdp(at[:-1][renyi], ORDERS[renyi], delta=left[:-1][renyi])
    spend[-1:][gaussian] = gdp_mu(at[-1:][gaussian], left[-1:][gaussian]) ** 2
    spend.flags.writeable = False
    return spend


def _best_epsilon(delta: float, t: float) -> Float64[ndarray, " currencies"]:
    """The epsilon at which each of CURRENCIES allows most under delta and noise of distance t, without a limit.

    At order a, e + log(delta - t - t exp(e)) / (a - 1), all of epsilon_to_rdp that depends on e, is largest at
    exp(e) = (delta - t) (a - 1) / (a t). In Gaussian DP it is searched on a grid: any other e only allows less.
    """
    if not 0 < t < delta / 2:
        return np.full_like(CURRENCIES, np.inf if t == 0 else -np.inf)
    grid = np.linspace(0.0, np.log(delta / t - 1), _GRID)[1:-1]
    most = gdp_mu(grid, delta - (1 + np.exp(grid)) * t)
    return np.append(np.log((delta - t) * (ORDERS - 1) / (ORDERS * t)), grid[most.argmax()])


@dataclass(frozen=True, eq=False)
class StudyCost:
    """The most that a study costs one unit of a data set, in nano-units of each of CURRENCIES, rounded up.

    noise_distance: total variation between the study's float64 noise and ideal noise, over all its queries;
    counted: whether its queries are counted and composed exactly, so that it may cost more than its own epsilon.
    """

    nano: Float64[ndarray, " currencies"]
    noise_distance: float
    counted: bool

    def at(self, order: float) -> int:
        """The cost in one of CURRENCIES, in nano-units. Raises Refused("lifetime_currency") if it has no finite
        bound.
        """
        value = float(self.nano[position_of(order)])
        if not value < _LARGEST:
            raise Refused(
                Code.LIFETIME_CURRENCY,
                f"the study has no bound in {currency_name(order)}, in which this data set's cap has counted since "
                "its first study; allowed: a study with Gaussian noise and without secret coins",
            )
        return int(value)


def currency_name(order: float) -> str:
    """The currency in words."""
    return "mu squared of Gaussian DP" if np.isnan(order) else f"Renyi DP at order {order:g}"


def position_of(order: float) -> int:
    """The position of an order in CURRENCIES. Raises InvalidInput for another number."""
    found = np.flatnonzero(np.isnan(CURRENCIES) if np.isnan(order) else order == CURRENCIES)
    if not len(found):
        raise InvalidInput(f"order is {order!r}; allowed: one of the {len(ORDERS)} tabled orders")
    return int(found[0])


def study_cost(study: Study, party: str, *, unit: str, spent: Mapping[str, int] | None, told_apart: bool) -> StudyCost:
    """What `party`'s seats in a study cost one `unit` of its data (of UNITS), whatever the study's own unit.

    spent: nano-units of each seat's ledger once the study is over; None for its whole cap. Several seats are privacy
    groups. told_apart: whether the node knows units by name, and lets each speak in one seat alone: then the largest
    cost counts at each order; if not, a unit may have moved, and speaks in all of them (`_of_all_seats`). Raises
    InvalidInput if the party has no seat, or for a unit that has no bound here: a party with groups; where records
    vote, more than the study's unit.
    """
    seats = seats_of(study, party)
    if unit == "party" and len(seats) > 1:
        raise InvalidInput(
            f"party {party!r} has {len(seats)} privacy groups in study {study.name!r}, and a lifetime cap of unit "
            "'party' is set; allowed: one seat, as a party's whole data move the votes of all of its groups"
        )
    bounded = study.votes.bounded(study.unit)
    if unit not in bounded:
        raise InvalidInput(
            f"a lifetime cap of unit {unit!r} is set, and each {study.unit} votes once in study {study.name!r}, so a "
            f"{unit} has no bound; allowed: a lifetime cap of unit {' or '.join(bounded)} alone; "
            f"where one of a {unit} is promised, another study"
        )
    distance = noise_reserve(
        study.mechanism,
        epsilon=np.zeros(1),
        view=check_view(study.view),
        classes=study.classes,
        query_limit=study.rows_noised,
        total_weight=study.largest_weight,
    )
    amounts = {seat: None if spent is None else spent[seat] for seat in seats}
    if told_apart or len(seats) == 1:
        nano = np.max([_seat_nano(study, seat, unit=unit, spent=amounts[seat]) for seat in seats], axis=0)
    else:
        nano = _of_all_seats(study, amounts, unit=unit)
    return StudyCost(nano, float(distance[0]) / 2, study.budgets.planned is not None)


def _of_all_seats(study: Study, spent: Mapping[str, int | None], *, unit: str) -> Float64[ndarray, " currencies"]:
    """The most, in nano-units, that several seats cost a unit that may speak in each of them, in the same queries, too.

    A query in which the seats S take part costs such a unit c(W) at their summed weight W: the sum over S of the parts
    w_i / W of it. A part is its seat's own charge times (w_i / W) c(W) / c(w_i). With the largest such quotient over
    all S, what the seats charged in all bounds every path (as in `_seat_nano`). With Gaussian noise and seats that
    charge the same queries, that is the square of the summed mu, exactly.
    """
    weights = {seat: study.roster[study.seats[seat]].weight for seat in spent}
    together = [each for size in range(1, len(spent) + 1) for each in combinations(spent, size)]
    total = np.zeros_like(CURRENCIES)
    for seat, amount in spent.items():
        parts = []
        for seats in together:
            if seat in seats:
                weight = sum(weights[each] for each in seats)
                alone = _seat_nano(study, seat, unit=unit, spent=amount, weight=weight if len(seats) > 1 else None)
                parts.append(alone * (weights[seat] / weight))
        total += np.ceil(np.max(parts, axis=0) * (1 + _MARGIN))
    return total


def seats_of(study: Study, party: str) -> tuple[str, ...]:
    """The seats of a party. Raises InvalidInput if it has none, or has both groups and a seat for all its records."""
    seats = tuple(seat.party for seat in study.roster if party_of(seat.party) == party)
    if not seats:
        raise InvalidInput(f"party {party!r} is not on the roster of study {study.name!r}")
    if len(seats) > 1 and party in seats:
        raise InvalidInput(f"party {party!r} has both groups and a seat for all its records; allowed: one or the other")
    return seats


def _seat_nano(
    study: Study, seat: str, *, unit: str, spent: int | None, weight: float | None = None
) -> Float64[ndarray, " currencies"]:
    """The most, in nano-units of each of CURRENCIES, that one seat can cost while its own ledger keeps its cap.

    weight: of a unit that speaks in other seats too, in all of them; None for the seat's own.

    In every currency a query costs `ask`, or `ask + answer` if answered: the spend is a combination of those two with
    counts >= 0. If it is at most B in the study's own currency, it is in another currency (or for another unit) at most
    B times the larger of the two quotients (mediant inequality). That holds on every path, so it is a filter in that
    currency; it is never more than monotonicity in the order gives (van Erven & Harremoes 2014, Thm 3).
    """
    position = study.seats[seat]
    budgets = study.budgets
    amount = int(budgets.cap[position]) if spent is None else spent
    if amount == 0:
        return np.zeros_like(CURRENCIES)
    amount = budgets.nano(amount, position)
    own_ask = float(budgets.ask[position])
    own = (own_ask, own_ask + float(budgets.answer[position]))
    ask, both = _costs(study, position, unit=unit, weight=weight)
    ratio = np.maximum(_quotient(ask, own[0]), _quotient(both, own[1]))
    nano = np.ceil(amount * ratio * (1 + _MARGIN))
    if weight is None and study.votes.at_own_cost(unit, of=study.unit):
        nano[position_of(float(budgets.order[position]))] = amount
    return nano


def _costs(
    study: Study, position: int, *, unit: str, weight: float | None
) -> tuple[Float64[ndarray, " currencies"], Float64[ndarray, " currencies"]]:
    """What a query costs a unit in each of CURRENCIES: only asked, and answered; infinite where there is no bound."""
    each = study.votes.moved(unit)
    # A secret coin amplifies only a unit's single vote; for several votes, the bound with known coins still holds
    # (joint quasi-convexity, van Erven & Harremoes 2014, Thm 13).
    secret = study.secret_coins
    seat = study.roster[position]
    rate = seat.rate if secret and each == 1 and weight is None else 1.0
    elsewhere = float(study.charged[position]) - seat.weight
    votes = np.array([each * ((seat.weight if weight is None else weight) + elsewhere)])
    moved = Sensitivity(votes, np.array([rate]), delta_squared=study.votes.delta_squared)
    view = check_view(study.view)
    charging = accountant(study.accountant_name)
    mechanism = study.mechanism
    exact = mechanism.holding(view=view, on_lattice=mechanism.lattice is not None, secret_coins=moved.sampled)
    if GaussianDp.name in exact and not mechanism.coarse:
        squared = mechanism.gaussian_dp(moved, view=mechanism.charged_view(view))
        mu_ask, mu_both = float(squared.ask[0, 0]), float(squared.ask[0, 0] + squared.answer[0, 0])
    else:
        mu_ask = mu_both = np.inf
    if isinstance(charging, GaussianDp):  # mu-GDP has RDP a mu^2 / 2 (Dong, Roth, Su 2022, Cor. B.6)
        return np.append(ORDERS * (mu_ask / 2), mu_ask), np.append(ORDERS * (mu_both / 2), mu_both)
    cost = charging.query_cost(mechanism, moved, view=view, classes=study.classes)
    return np.append(cost.ask[0], mu_ask), np.append(cost.ask[0] + cost.answer[0], mu_both)


def _quotient(cost: Float64[ndarray, " currencies"], own: float) -> Float64[ndarray, " currencies"]:
    if own > 0:
        return cost / own
    return np.where(cost > 0, np.inf, 0.0)


def first_order(cap: LifetimeCap, cost: StudyCost) -> tuple[float, float]:
    """The currency of a lifetime filter and its noise room, both fixed for ever with the first study.

    The currency is the one of CURRENCIES in which the first study could be repeated most often. The noise room is the
    total variation distance from ideal noise that all studies together may have; (1 + e^epsilon) times as much is taken
    off delta, epsilon being the cap's or a smaller one (`LifetimeCap.affords`). The room is a hundredth of delta, or
    what eight studies like the first need; if the first study does not fit beside that, at most half of delta, and
    at last only what it needs itself. Raises Refused("lifetime_cap") if it fits at no order, with the cap that would
    admit it.
    """
    found = _first_order(cap, cost)
    if found is not None:
        return found
    enough = admitting(cap, lambda larger: _first_order(larger, cost) is not None)
    counted = f". {COUNTED_LIFETIME}" if cost.counted else ""
    raise Refused(
        Code.LIFETIME_CAP,
        f"the study may cost more than the whole lifetime cap, epsilon {at_most(cap.epsilon)} at delta "
        f"{at_most(cap.delta)}, of which nothing is taken; allowed: {enough}, or a study with smaller caps{counted}",
    )


def _first_order(cap: LifetimeCap, cost: StudyCost) -> tuple[float, float] | None:
    """As first_order; None if the study fits at no order."""
    distance = cost.noise_distance
    whole = cap.delta / (1.0 + float(np.exp(min(cap.epsilon, 700.0))))
    least = _NOISE_SHARE * whole
    half = max(least, min(_NOISE_COPIES * distance, whole / 2), distance)
    for room in (max(least, _NOISE_COPIES * distance), half, distance):
        copies = cap_nano(cap.affords(room)) / np.maximum(cost.nano, 1.0)
        best = int(copies.argmax())
        if copies[best] >= 1:
            return float(CURRENCIES[best]), room
    return None


def admitting(cap: LifetimeCap, fits: Callable[[LifetimeCap], bool]) -> str:
    """In words: the smallest epsilon, to a tenth, of a cap at the same delta under which a study fits.

    fits: whether it does under a cap; a larger epsilon must not undo it (`LifetimeCap.affords`).
    """
    tenths = [*range(ceil(10 * cap.epsilon), 10 * _LARGEST_EPSILON + 1)]
    at = bisect_left(tenths, True, key=lambda tenth: fits(LifetimeCap(tenth / 10, cap.delta)))
    if at == len(tenths):
        return f"no cap of up to epsilon {_LARGEST_EPSILON} at this delta admits it"
    return f"a lifetime cap of epsilon {at_most(tenths[at] / 10)} at this delta admits it"


def allowance(cap: LifetimeCap, order: float, noise_distance: float) -> int:
    """The nano-units that the cap allows in total in its filter's currency, rounded down; 0 if it allows none."""
    return int(min(float(cap_nano(cap.affords(noise_distance))[position_of(order)]), _LARGEST))


def epsilon_reached(nano: int, order: float, *, delta: float, noise_distance: float) -> float:
    """The epsilon, at delta, of `nano` units reserved in the filter's currency: to show how full it is.

    Solves e >= conversion(nano, order, delta - (1 + e^e) t) from below; infinite if no e does, 0 if nano is 0.
    """
    if nano == 0 and noise_distance == 0:
        return 0.0
    spend, at = np.array([nano / NANO]), np.array([order])
    epsilon = 0.0
    for _ in range(_FIXED_POINT_STEPS):
        left = _left(delta, epsilon, noise_distance)
        if not left > 0:
            return float("inf")
        at_delta = np.array([left])
        if np.isnan(order):
            needed = float(gdp_epsilon(np.sqrt(spend), at_delta)[0])
        else:
            needed = float(rdp_to_epsilon(spend, at, delta=at_delta)[0])
        if needed <= epsilon:
            return epsilon
        epsilon = needed * (1 + 1e-9)
    return float("inf")


def _left(delta: float, epsilon: float, noise_distance: float) -> float:
    """The delta that remains for ideal noise, see `LifetimeCap.affords`; below 0 if none remains."""
    if noise_distance == 0:
        return delta
    with np.errstate(over="ignore"):
        return float(delta - (1.0 + np.exp(np.float64(epsilon))) * noise_distance)


@dataclass(frozen=True)
class LifetimeUse:
    """A lifetime cap and how full it is.

    currency: its filter's; reserved: nano-units; noise_used, noise_room: total variation
    distances of float64 noise from ideal noise, of all studies and allowed (party.lifetime.first_order); forfeited:
    whether it is charged in full, whatever is reserved (party.budget.policy).
    """

    data_set: str
    unit: str
    cap: LifetimeCap
    currency: float
    reserved: int = 0
    noise_used: float = 0.0
    noise_room: float = 0.0
    forfeited: bool = False

    @property
    def allowed(self) -> int:
        """Nano-units that may be reserved in total."""
        return allowance(self.cap, self.currency, self.noise_room)

    @property
    def epsilon_reserved(self) -> float:
        """The epsilon, at the cap's delta, of what is reserved."""
        return self.cap.epsilon if self.forfeited else self.epsilon_of(self.reserved, self.noise_used)

    def epsilon_of(self, nano: int, noise_distance: float) -> float:
        """The epsilon, at the cap's delta, of `nano` units alone, with noise at this distance from ideal noise."""
        return epsilon_reached(nano, self.currency, delta=self.cap.delta, noise_distance=noise_distance)

    @property
    def share(self) -> float:
        """The share, at least 0, of the allowed nano-units that is reserved."""
        if self.forfeited:
            return 1.0
        return self.reserved / self.allowed if self.allowed else float(self.reserved > 0)


@dataclass(frozen=True)
class Forecast:
    """What approving a study would do to one lifetime cap."""

    before: LifetimeUse
    after: LifetimeUse
    fits: bool


def too_much(forecast: Forecast) -> str:
    """The message that a study does not fit; its shares are rounded so that they never look as if it did."""
    before, after = forecast.before, forecast.after
    cap = f"epsilon {at_most(after.cap.epsilon)} at delta {at_most(after.cap.delta)}"
    said = f"unit {after.unit!r}: {cap} for {after.data_set!r}"
    if not after.noise_used <= after.noise_room:
        return (
            f"{said}: the share of delta set aside for float64 rounding of noise, fixed with the first study, allows a "
            f"distance of {after.noise_room:.3g}, and with this study {after.noise_used:.3g} would be needed; allowed: "
            "a study with integer noise (units in its level), or with fewer queries"
        )
    added, free = after.reserved - before.reserved, max(after.allowed - before.reserved, 0)
    wanted, left = ceil(1000 * added / after.allowed) / 10, floor(1000 * free / after.allowed) / 10
    alone, least = (before.epsilon_of(nano, after.noise_used - before.noise_used) for nano in (added, free))
    return (
        f"{said}: the study may use {wanted:.1f} % of it (alone epsilon {at_most(alone)}); allowed: at most the "
        f"{left:.1f} % that is left (alone epsilon {at_least(least)}). A cap of epsilon "
        f"{at_most(after.epsilon_reserved)} would have admitted it, but a cap is fixed with its first study"
    )
