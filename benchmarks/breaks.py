"""Deliberately broken mechanisms, and broken code of the levels, for `conclave-simulate audit --break`.

A mechanism is broken in one place of what is run: another source of noise, another mechanism object, other counts. Of a
level a function of the running code is replaced where it is called. All of the code around it is the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from typing import Any  # Any: functions of any signature are replaced

import numpy as np
import scipy
from jaxtyping import Int64
from numpy import broadcast_to, ndarray

from protocols.mechanisms import Mechanism
from protocols.noise import StandardNormal
from protocols.votes import ABSTAIN
from simulations.audit.as_run import WEIGHTS
from simulations.audit.breaks import Break, Counts, Function, RunBreak, scaled_noise

Shape = tuple[int, ...]
Draw = Callable[[StandardNormal, Shape], Counts]
# What a release, or a noisy histogram, is of counts and noise.
Shown = Callable[[Counts, StandardNormal], Counts | Int64[ndarray, " queries"]]
Release = Callable[[Shown, Mechanism, Counts, StandardNormal], Counts | Int64[ndarray, " queries"]]


def _releasing(release: Release) -> Callable[[Mechanism], Mechanism]:
    """The same mechanism but for its labels, or, of a plain noisy argmax, for its noisy histogram.

    release(what it should be, mechanism, counts, noise).
    """

    def mechanism_of(mechanism: Mechanism) -> Mechanism:
        kind = type(mechanism)
        name = "noisy" if kind.release is Mechanism.release else "labels"
        right = getattr(kind, name)

        def wrong(self: Mechanism, counts: Counts, noise: StandardNormal, **more: object) -> object:
            return release(lambda *given: right(self, *given, **more), self, counts, noise)

        broken = type(kind.__name__, (kind,), {name: wrong})
        held = fields(kind)  # type: ignore[arg-type]  # every mechanism is a dataclass
        made: Mechanism = broken(**{each.name: getattr(mechanism, each.name) for each in held})
        return made

    return mechanism_of


def _drawing(draw: Draw) -> Callable[[StandardNormal], StandardNormal]:
    return lambda noise: lambda shape: draw(noise, shape)


def _same_in_each_class(noise: StandardNormal, shape: Shape) -> Counts:
    """One draw per query, used for all of its classes: it cancels in the argmax."""
    if len(shape) < 2:
        return noise(shape)
    one: Counts = broadcast_to(noise((*shape[:-1], 1)), shape)
    return one


def _once_a_batch(noise: StandardNormal, shape: Shape) -> Counts:
    one: Counts = broadcast_to(noise((1, *shape[1:])), shape)
    return one


def _no_threshold_noise(noise: StandardNormal, shape: Shape) -> Counts:
    return noise(shape) if len(shape) > 1 else np.zeros(shape)


def _one_noise(noise: StandardNormal) -> StandardNormal:
    """The threshold's draw serves the first class too; with one draw per query, the second class takes the first's."""
    kept: list[Counts] = []

    def draw(shape: Shape) -> Counts:
        drawn = noise(shape)
        if len(shape) == 1:
            kept[:] = [drawn]
            return drawn
        drawn = drawn.copy()
        drawn[:, 0] = kept.pop() if kept else drawn[:, 1]
        return drawn

    return draw


def _sure(
    should: Shown, mechanism: Mechanism, counts: Counts, noise: StandardNormal
) -> Counts | Int64[ndarray, " queries"]:
    """No noise in queries whose lead is above two noise scales."""
    ordered = np.sort(counts, axis=1)
    sure = ordered[:, -1] - ordered[:, -2] > 2 * mechanism.noise_scale
    # Laplace noise of a standard normal draw of 0 is 0, too.
    return should(counts, lambda shape: np.where(sure if len(shape) == 1 else sure[:, None], 0.0, noise(shape)))


def _restarted(noise: StandardNormal) -> StandardNormal:
    """A generator that starts anew with every batch."""
    kept: dict[Shape, Counts] = {}
    return lambda shape: kept.setdefault(shape, noise(shape))


def _every_second_batch(noise: StandardNormal) -> StandardNormal:
    """Every second draw of a shape is the one before it again."""
    kept: dict[Shape, Counts] = {}

    def draw(shape: Shape) -> Counts:
        if shape in kept:
            return kept.pop(shape)
        kept[shape] = noise(shape)
        return kept[shape]

    return draw


def _period(noise: StandardNormal) -> StandardNormal:
    """A generator that repeats itself after 5,000 numbers."""
    kept, at = noise((5000,)), 0

    def draw(shape: Shape) -> Counts:
        nonlocal at
        count = int(np.prod(shape))
        drawn = kept[(at + np.arange(count)) % len(kept)].reshape(shape)
        at += count
        return drawn

    return draw


def _clipped(noise: StandardNormal, shape: Shape) -> Counts:
    return np.clip(noise(shape), -3.0, 3.0)


def _laplace(noise: StandardNormal, shape: Shape) -> Counts:
    half = scipy.special.ndtr(-np.abs(z := noise(shape)))
    return -np.sign(z) * np.log(2 * half) / np.sqrt(2)


def _uniform(noise: StandardNormal, shape: Shape) -> Counts:
    return np.sqrt(12) * (scipy.special.ndtr(noise(shape)) - 0.5)


def _bare_class(noise: StandardNormal, shape: Shape) -> Counts:
    return noise(shape) if len(shape) < 2 else noise(shape) * (np.arange(shape[1]) != 1)


def _neighbouring_classes(noise: StandardNormal, shape: Shape) -> Counts:
    z = noise(shape)
    return z if len(shape) < 2 else 0.8 * z + 0.6 * np.roll(z, 1, axis=1)


def _query_before(noise: StandardNormal, shape: Shape) -> Counts:
    z = noise(shape).copy()
    z[1::2] = z[: 2 * (shape[0] // 2) : 2]
    return z


def _sparse(noise: StandardNormal, shape: Shape) -> Counts:
    z = noise(shape).copy()
    z[49::50] = 0.0
    return z


def _rarely_none(noise: StandardNormal, shape: Shape) -> Counts:
    # A normal draw's own low digits decide.
    z = noise(shape)
    return np.where(np.abs(z * 1e6) % 1.0 < 1 / 5000, 0.0, z)


def _exchanged(mechanism: Mechanism) -> Mechanism:
    values = mechanism.values
    if "sigma_threshold" not in values:
        return mechanism
    other = {"sigma": values["sigma_threshold"], "sigma_threshold": values["sigma"]}
    return type(mechanism).build(view="label", given={**values, **other})


def _away_from_zero(
    should: Shown, mechanism: Mechanism, counts: Counts, noise: StandardNormal
) -> Counts | Int64[ndarray, " queries"]:
    """Noise is rounded away from zero, to whole votes."""
    scale = mechanism.label_sigma

    def draw(shape: Shape) -> Counts:
        z = noise(shape)
        return np.sign(z) * np.ceil(np.abs(z) * scale) / scale

    return should(counts, draw)


def _whole_votes(
    should: Shown, mechanism: Mechanism, counts: Counts, noise: StandardNormal
) -> Counts | Int64[ndarray, " queries"]:
    """Counts and noise are rounded to whole votes before the argmax, which gives ties to the first class."""
    scale = mechanism.label_sigma
    return should(np.rint(counts), lambda shape: np.rint(noise(shape) * scale) / scale)


def _query_beside(
    should: Shown, mechanism: Mechanism, counts: Counts, noise: StandardNormal
) -> Counts | Int64[ndarray, " queries"]:
    """A tenth of the votes of the query before is counted with each."""
    return should(counts + 0.1 * (np.roll(counts, 1, axis=0) - counts), noise)


MECHANISM_BREAKS: dict[str, Break] = {
    "half-noise": Break("half of the noise that is accounted for", mechanism=scaled_noise(0.5)),
    "same-noise": Break("the same noise in each class", noise=_drawing(_same_in_each_class)),
    "double-votes": Break("each vote is counted twice", counts=lambda counts: 2 * counts),
    "batch-noise": Break("one draw of noise for all queries of a batch", noise=_drawing(_once_a_batch)),
    "bare-threshold": Break("no noise on the threshold test", noise=_drawing(_no_threshold_noise)),
    "sure-noiseless": Break("no noise where the lead is above two noise scales", mechanism=_releasing(_sure)),
    "noise-90": Break("nine tenths of the noise", mechanism=scaled_noise(0.9)),
    "noise-85": Break("0.85 of the noise", mechanism=scaled_noise(0.85)),
    "noise-80": Break("four fifths of the noise", mechanism=scaled_noise(0.8)),
    "shared-noise": Break("the threshold's noise is used again for a class", noise=_one_noise),
    "restarted": Break("the generator starts anew with every batch", noise=_restarted),
    "every-second": Break("every second batch has the noise of the one before", noise=_every_second_batch),
    "short-period": Break("the generator repeats itself after 5,000 numbers", noise=_period),
    "clipped": Break("noise ends at three standard deviations", noise=_drawing(_clipped)),
    "laplace": Break("noise of another law, Laplace's, of the same variance", noise=_drawing(_laplace)),
    "uniform": Break("noise of another law, uniform, of the same variance", noise=_drawing(_uniform)),
    "bare-class": Break("one class without noise", noise=_drawing(_bare_class)),
    "neighbouring-classes": Break("noise of neighbouring classes is correlated", noise=_drawing(_neighbouring_classes)),
    "query-before": Break("every second query has the noise of the one before", noise=_drawing(_query_before)),
    "sparse": Break("every fiftieth query of a batch has no noise", noise=_drawing(_sparse)),
    "away-from-zero": Break("noise is rounded away from zero to whole votes", mechanism=_releasing(_away_from_zero)),
    "whole-votes": Break("ties of whole noisy votes go to the first class", mechanism=_releasing(_whole_votes)),
    "rare-noiseless": Break("one draw in 5,000 has no noise", noise=_drawing(_rarely_none)),
    "scales-exchanged": Break("the threshold's noise has the label's scale, and the reverse", mechanism=_exchanged),
    "query-beside": Break("a tenth of the votes of another query is counted", mechanism=_releasing(_query_beside)),
}


def _first_class_for_none(right: Function) -> Function:
    return lambda votes, *given, **more: right(np.where(votes == ABSTAIN, 0, votes), *given, **more)


def _heaviest_twice(right: Function) -> Function:
    heaviest = WEIGHTS.max()
    return lambda votes, weights, **more: right(votes, np.where(weights == heaviest, 2 * weights, weights), **more)


def _heaviest_units_twice(right: Function) -> Function:
    def weights(*given: Any, **more: Any) -> Any:
        units = right(*given, **more)
        return np.where(units == units.max(), 2 * units, units)

    return weights


def _last_party_left_out(right: Function) -> Function:
    return lambda votes, weights, **more: right(votes[:-1], weights[:-1], **more)


def _as_of_one_server(right: Function) -> Function:
    return lambda words, *, sigma: right(words, sigma=sigma * 7 / 10)


def _known_draws(right: Function) -> Function:
    def draw(words: Any, *, sigma: Any) -> Any:
        known = words.copy()
        # Whatever the words are: the same quantile.
        known[:, ::2] = 1 << 62
        return right(known, sigma=sigma)

    return draw


def _smaller_share(right: Function) -> Function:
    return lambda study: right(study) * 9 / 10


def _multiples_of(step: int) -> Callable[[Function], Function]:
    """Noise of the same variance on every `step`-th whole number alone."""
    return lambda right: lambda *given, sigma, **more: step * right(*given, sigma=sigma / step, **more)


def _shared_by_all(right: Function) -> Function:
    """A share as if nobody dropped out or colluded."""

    def share(study: Any) -> Any:
        honest = study.quorum - study.confidentiality.colluders
        smaller = float(right(study)) * (honest / len(study.roster)) ** 0.5
        return Fraction(smaller).limit_denominator(2**16)

    return share


def _nine_tenths_charged(right: Function) -> Function:
    return lambda spend: right(spend) * 0.9


def _price_over(right: Function) -> Function:
    """Every cap is larger by 0.006: of more than 170 queries, by one or two."""
    return lambda spend: np.floor(right(spend) * 1.006)


def _every_sixth_silent(right: Function) -> Function:
    calls = 0

    def draw(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        drawn = right(*given, **more)
        return np.zeros_like(drawn) if calls % len(WEIGHTS) == 0 else drawn

    return draw


def _smaller_units(right: Function) -> Function:
    return lambda source, *, sigma, size: right(source, sigma=sigma * 17 / 20, size=size)


_FILTER = "protocols.budgets.filter"
_COUNTED, _SUMMED = "protocols.study.several_findings", "protocols.levels.secure_sum.ballot"
_POOL, _BOUND = "protocols.levels.two_server.noise_pool", "protocols.levels.two_server.circuit_inputs"
RUN_BREAKS: dict[str, RunBreak] = {
    "abstentions-first": RunBreak(
        "clear: abstentions are counted for class 0", "clear", (f"{_COUNTED}:count_votes",), _first_class_for_none
    ),
    "weight-twice": RunBreak(
        "clear: one party's weight is doubled", "clear", (f"{_COUNTED}:count_votes",), _heaviest_twice
    ),
    "vote-left-out": RunBreak(
        "clear: the last party's votes are not counted", "clear", (f"{_COUNTED}:count_votes",), _last_party_left_out
    ),
    "smaller-integers": RunBreak(
        "clear: integer noise of 0.85 of its sigma", "clear", ("protocols.noise:discrete_gaussian",), _smaller_units
    ),
    "share-missing": RunBreak(
        "secure_sum: one party adds no noise", "secure_sum", (f"{_SUMMED}:integer_gaussian",), _every_sixth_silent
    ),
    "smaller-shares": RunBreak(
        "secure_sum: shares of nine tenths of the noise", "secure_sum", (f"{_SUMMED}:noise_share",), _smaller_share
    ),
    **{
        f"multiples-of-{step}-{where}": RunBreak(
            f"{level}: noise is a multiple of {step}", level, (place,), _multiples_of(step)
        )
        for step in (2, 4, 8)
        for level, where, place in (
            ("clear", "drawn", "protocols.noise:discrete_gaussian"),
            ("secure_sum", "shared", f"{_SUMMED}:integer_gaussian"),
            ("two_server", "inverted", f"{_POOL}:inverted"),
        )
    },
    "shared-by-all": RunBreak(
        "secure_sum: shares as if nobody dropped out or colluded", "secure_sum",
        (f"{_SUMMED}:noise_share", "protocols.levels.secure_sum.terms:noise_share"), _shared_by_all,
    ),
    "charges-90": RunBreak(
        "budgets: nine tenths are charged", "budgets", (f"{_FILTER}:spend_nano",), _nine_tenths_charged
    ),
    "cap-past": RunBreak("budgets: caps let a query past", "budgets", (f"{_FILTER}:cap_nano",), _price_over),
    "shares-first": RunBreak(
        "secure_sum: abstentions are counted for class 0", "secure_sum", (f"{_COUNTED}:count_votes",),
        _first_class_for_none,
    ),
    "one-server": RunBreak(
        "two_server: both servers' noise is together as much as one's", "two_server", (f"{_POOL}:inverted",),
        _as_of_one_server,
    ),
    "known-seed": RunBreak(
        "two_server: the noise of every other class is the same in every batch", "two_server",
        (f"{_POOL}:inverted",), _known_draws,
    ),
    "units-twice": RunBreak(
        "two_server: one party's weight is doubled by both servers", "two_server",
        (f"{_BOUND}:own_weights",), _heaviest_units_twice,
    ),
}  # fmt: skip
BREAKS = MECHANISM_BREAKS | RUN_BREAKS
