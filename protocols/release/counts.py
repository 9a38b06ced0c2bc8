"""counts.csv and counts.json: how many patients have which values, by hospital where hospitals' sums are apart.

All of it follows from the noisy sums, which are released beside it. An interval counts the noise alone: it is about
these patients, not about others like them. A count that noise may have made of nothing is marked, and not printed.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Final  # Any: a JSON object

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import DataCorrupt
from protocols.study.count_cells import count_cells
from protocols.study.deployed import DeployedStudy
from protocols.study.released_noise import noise_in
from protocols.study.study import party_of
from protocols.study.votes import unit_sums

COUNTS_FILE, COUNTS_JSON = "counts.csv", "counts.json"
_FORMAT: Final = "conclave counts 1"
CONFIDENCE: Final = 0.95
EVERYWHERE: Final = "all"
# Names of a row of all values of a column, and of all classes.
ANY: Final = ""
_WIDTH = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


@dataclass(frozen=True, kw_only=True)
class Count:
    """How many patients: at a site, or EVERYWHERE, with a value of a column, of a class; ANY for all of them.

    patients: None where the count is below its noise; low, high: the interval of CONFIDENCE, from 0. It is closed where
    the count is shown; where it is not, high is twice the noise's reach, whatever the count was.
    """

    site: str
    column: str
    value: str
    label: str
    patients: int | None
    low: int
    high: int


def counts_of(study: DeployedStudy, cells: Int64[ndarray, "rows classes"], *, voted: Collection[str]) -> list[Count]:
    """The table of a count. cells: the noisy sums, in lattice units; voted: the seats whose patients are in them.

    Everybody first, then site by site. Raises InvalidInput where the study counts nothing.
    """
    named = count_cells(study.terms).rows
    each = unit_sums(study).counted(study)
    sums = cells.reshape(-1, len(named), study.classes) / each
    noise = noise_in(study, voted=len(voted)) * study.units / each
    found: list[Count] = []
    for site, seats in _sites(study, voted).items():
        at = [study.seats[seat] for seat in seats] if study.apart else [0]
        held, sigma = sums[at].sum(axis=0), noise * len(at) ** 0.5
        found += _of_site(study, site, named, held, sigma)
    return found


def reach(study: DeployedStudy, *, classes: int) -> int:
    """How far noise may carry a count over so many classes, of one hospital or of all, with the confidence stated."""
    sigma = noise_in(study) * study.units / unit_sums(study).counted(study)
    return int(np.ceil(_WIDTH * sigma * classes**0.5))


def _sites(study: DeployedStudy, voted: Collection[str]) -> dict[str, list[str]]:
    """The seats behind each part of the table."""
    sites = {EVERYWHERE: [seat.party for seat in study.roster if seat.party in voted]}
    if study.apart:
        for seat in sites[EVERYWHERE]:
            sites.setdefault(f"{party_of(seat)}", []).append(seat)
    return sites


def _of_site(
    study: DeployedStudy,
    site: str,
    named: tuple[tuple[str, str], ...],
    held: Float64[ndarray, "rows classes"],
    sigma: float,
) -> Iterator[Count]:
    classes = study.terms.class_names if study.terms.label else ()
    columns = [name for name, _ in named]
    # Each column's cells add up to the patients: the best mean of those sums weighs each by its noise.
    sizes = {name: columns.count(name) for name in columns}
    each = np.array([1 / sizes[name] for name in columns])
    spread = float(sum(1 / size for size in sizes.values())) ** -0.5
    total = (held * each[:, None]).sum(axis=0) / sum(1 / size for size in sizes.values())
    yield _count(site, ANY, ANY, ANY, float(total.sum()), sigma * spread * len(total) ** 0.5)
    for at, label in enumerate(classes):
        yield _count(site, ANY, ANY, label, float(total[at]), sigma * spread)
    for (column, value), row in zip(named, held, strict=True):
        yield _count(site, column, value, ANY, float(row.sum()), sigma * len(row) ** 0.5)
        for at, label in enumerate(classes):
            yield _count(site, column, value, label, float(row[at]), sigma)


def _count(site: str, column: str, value: str, label: str, estimate: float, sigma: float) -> Count:
    reach = _WIDTH * sigma
    names = {"site": site, "column": column, "value": value, "label": label}
    if estimate < reach:
        return Count(**names, patients=None, low=0, high=int(np.ceil(2 * reach)))
    low, high = int(np.floor(estimate - reach)), int(np.ceil(estimate + reach))
    return Count(**names, patients=round(estimate), low=max(low, 0), high=high)


def counts_csv(counts: list[Count]) -> str:
    """The content of counts.csv: a count below its noise has no number of patients."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*asdict(counts[0]), "below_noise"])
    for each in counts:
        shown = "" if each.patients is None else each.patients
        writer.writerow([*(asdict(each) | {"patients": shown}).values(), "yes" if each.patients is None else "no"])
    return text.getvalue()


def counts_json(study: DeployedStudy, counts: list[Count], *, voted: Collection[str]) -> dict[str, Any]:
    """The content of counts.json."""
    return {
        "format": _FORMAT,
        "study": study.name,
        "digest": study.digest.hex(),
        "unit": study.unit,
        "level": study.confidentiality.name,
        "confidence": CONFIDENCE,
        "counted": [seat.party for seat in study.roster if seat.party in voted],
        "not_counted": [seat.party for seat in study.roster if seat.party not in voted],
        "counts": [asdict(each) for each in counts],
    }


def read_counts(table: Mapping[str, Any], *, where: str) -> list[Count]:
    """The table in counts.json, for planning: untrusted. Raises DataCorrupt."""
    try:
        if table["format"] != _FORMAT:
            raise ValueError(f"format {str(table['format'])[:40]!r}")
        found = [Count(**each) for each in table["counts"]]
        for each in found:
            names = (each.site, each.column, each.value, each.label)
            numbers = [each.low, each.high, *([] if each.patients is None else [each.patients])]
            if not all(isinstance(name, str) for name in names) or not all(type(number) is int for number in numbers):
                raise ValueError("a count with other than names and whole numbers")
            if not 0 <= each.low <= each.high < 2**53 or not each.low <= (each.patients or each.low) <= each.high:
                raise ValueError(f"an interval from {each.low} to {each.high}")
    except (KeyError, TypeError, ValueError) as error:
        raise DataCorrupt(f"{where} is no {COUNTS_JSON}: {str(error)[:200]}; allowed: one that a release has") from None
    return found


def to_text(table: Mapping[str, Any]) -> str:
    """JSON as it is written."""
    return json.dumps(table, indent=1, allow_nan=False) + "\n"
