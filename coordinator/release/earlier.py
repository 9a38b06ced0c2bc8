"""Earlier releases of the same consortium: what their signed statements guarantee, for composing with a new one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # parsed JSON, checked below

from protocols.budgets.guarantee import Composition, Guarantee, compose
from protocols.claims.strength import Figure
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.reading import read_json
from protocols.study.votes import UNITS

# A party has few seats in one release; above this many combinations, only the epsilons are added.
_MOST_COMBINATIONS = 256


@dataclass(frozen=True)
class EarlierRelease:
    """What one statement guarantees: for each party's seats, and for patients known to 1, 2, ... hospitals.

    study: the study's digest in hexadecimal digits; before: the digests of the earlier releases' studies that it names.
    """

    name: str
    study: str
    created: str
    unit: str
    parties: Mapping[str, tuple[Guarantee, ...]]
    several: tuple[Guarantee, ...]
    before: tuple[str, ...]


def read_statement(path: Path) -> EarlierRelease:
    """The guarantees in a privacy.json. Raises DataCorrupt for a file that is not such a statement."""
    try:
        return parse_statement(read_json(path))
    except (DataUnavailable, DataCorrupt) as error:
        raise DataCorrupt(f"{path} is not a privacy statement: {str(error)[:200]}") from None


def parse_statement(statement: dict[str, Any]) -> EarlierRelease:
    """As read_statement, for parsed JSON."""
    try:
        parties: dict[str, tuple[Guarantee, ...]] = {}
        for seat in statement["seats"]:
            party = str(seat["party"])
            parties[party] = (*parties.get(party, ()), guarantee_from(seat["guarantee"]))
        study = statement["study"]
        several = tuple(guarantee_from(row["guarantee"]) for row in statement["several_hospitals"]["any"])
        return EarlierRelease(
            str(study["name"]),
            str(study["digest"]),
            str(statement["created"]),
            UNITS[UNITS.index(statement["protected"]["unit"])],
            parties,
            several,
            tuple(str(each["study"]) for each in statement.get("earlier_releases", {}).get("releases", ())),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DataCorrupt(
            f"not a privacy statement of this format: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def guarantee_from(table: Mapping[str, Any]) -> Guarantee:
    """Reads what guarantee_table wrote. Raises KeyError, TypeError, ValueError."""

    def number(name: str, absent: float) -> float:
        return absent if table[name] is None else float(table[name])

    return Guarantee(
        number("epsilon", math.inf),
        float(table["delta"]),
        number("order", math.nan),
        float(table["spend"]),
        float(table["noise_distance"]),
    )


def figure_from(table: Mapping[str, Any]) -> Figure:
    """What sentences say of a guarantee, or of a composition, of which only epsilon and delta are known."""
    if "spend" in table:
        return guarantee_from(table).figure
    return Figure(math.inf if table["epsilon"] is None else table["epsilon"], table["delta"])


def guarantee_table(guarantee: Guarantee) -> dict[str, float | None]:
    """A guarantee as JSON; an infinite epsilon, and the order of Gaussian DP, become null."""
    return {
        "epsilon": _finite(guarantee.epsilon),
        "delta": guarantee.delta,
        "order": _finite(guarantee.order),
        "spend": guarantee.spend,
        "noise_distance": guarantee.noise_distance,
    }


def together(this: EarlierRelease, before: Sequence[EarlierRelease]) -> dict[str, Any]:
    """The composition of this release with the earlier ones, per party and for patients known to several, as JSON.

    Raises InvalidInput for a release that is given twice, and if an earlier release names one that is missing.
    """
    digests = [release.study for release in (*before, this)]
    twice = next((digest for digest in digests if digests.count(digest) > 1), None)
    if twice is not None:
        raise InvalidInput(f"the release of study {twice[:16]} is given twice; allowed: each earlier release once")
    missing = {digest: each.name for each in before for digest in each.before if digest not in digests}
    if missing:
        digest, name = next(iter(missing.items()))
        raise InvalidInput(
            f"the earlier release {name!r} names one of study {digest[:16]} before it; give that one too"
        )
    if not before:
        return {"releases": [], "unit": this.unit, "parties": [], "several": []}
    parties = []
    for party, own in this.parties.items():
        seats = [own, *(release.parties[party] for release in before if party in release.parties)]
        parties.append({"party": party, "releases": len(seats), **_table(_worst(seats))})
    several = []
    for count in range(1, len(this.several) + 1):
        rows = [release.several[min(count, len(release.several)) - 1] for release in (*before, this)]
        several.append({"hospitals": count, "releases": len(rows), **_table(compose(rows))})
    units = {release.unit for release in (*before, this)}
    return {
        "releases": [
            {"name": each.name, "study": each.study, "created": each.created, "unit": each.unit} for each in before
        ],
        # The smallest: what protects a party protects each of its patients, and so each record.
        "unit": next(unit for unit in UNITS if unit in units),
        "parties": parties,
        "several": several,
    }


def _worst(seats: Sequence[Sequence[Guarantee]]) -> Composition:
    """The worst combination of seats: in each release, a patient belongs to one seat of the party."""
    if math.prod(len(each) for each in seats) <= _MOST_COMBINATIONS:
        combinations = [compose(rows) for rows in itertools.product(*seats)]
        return max(combinations, key=lambda each: each.epsilon)
    basic = sum(max(guarantee.epsilon for guarantee in each) for each in seats)
    delta = sum(max(guarantee.delta for guarantee in each) for each in seats)
    return Composition(delta, basic, math.inf, math.nan)


def _table(composition: Composition) -> dict[str, float | None]:
    return {
        "epsilon": _finite(composition.epsilon),
        "delta": composition.delta,
        "epsilon_by_adding": _finite(composition.basic),
        "epsilon_by_renyi": _finite(composition.renyi),
        "order": _finite(composition.order),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
