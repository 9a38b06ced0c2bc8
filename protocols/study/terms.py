"""What a study between organisations fixes besides its privacy: task, classes, features, pool, coordinator, dates.

A simulation has no terms. They are part of the study and of its digest, which is in every message: a hospital that
approved one reading of its columns cannot be asked under another. A node that was given the pool refuses any other
query; without it, it can check only shape and number.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod

from protocols.crypto.identity import check_name
from protocols.errors import InvalidInput
from protocols.features.texts import USUAL_VECTORS, text_width
from protocols.ranges import check

FEATURE_KINDS = ("numeric", "categorical", "text")
_LARGEST_INPUT = 2**24
USUAL_MISSES = 5


@dataclass(frozen=True, kw_only=True)
class Feature:
    """How one column of a hospital's table becomes features; nothing is computed from private rows.

    numeric: (value - centre) / scale, of log(1 + value) if `log`; if a value may be missing it becomes 0, and a second
    feature says so. categorical: one feature per category; a missing value is 0 in all of them. text: the features of
    `vectors`, see protocols.features.texts; a missing text, or one without a word, is
    0 in all of them. edges: of numeric columns, the ascending numbers at which the ranges of a count begin.
    """

    column: str
    kind: str
    centre: float | None = None
    scale: float | None = None
    log: bool = False
    categories: tuple[str, ...] = ()
    may_miss: bool = False
    least: float | None = None
    most: float | None = None
    vectors: str | None = None
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        where = f"feature {self.column!r}"
        _check_printable(f"{where}: categories", self.categories)
        if self.kind not in FEATURE_KINDS:
            raise InvalidInput(f"{where}: kind is {self.kind!r}; allowed: {', '.join(FEATURE_KINDS)}")
        if not (self.column and self.column.isprintable()):
            raise InvalidInput(f"{where}: the column has no printable name")
        if list(self.edges) != sorted(set(self.edges)) or not all(map(isfinite, self.edges)):
            raise InvalidInput(f"{where}: edges are {list(self.edges)[:20]}; allowed: finite and ascending")
        if self.edges and self.kind != "numeric":
            raise InvalidInput(f"{where}: {self.kind} with edges; allowed: edges of a numeric column alone")
        if self.kind == "text":
            self._check_text(where)
        elif self.vectors is not None:
            raise InvalidInput(f"{where}: {self.kind}; allowed: no vectors, which are of text")
        elif self.kind == "numeric":
            if self.categories or self.centre is None or self.scale is None:
                raise InvalidInput(f"{where}: numeric; allowed: centre and scale, and no categories")
            if not (isfinite(self.centre) and isfinite(self.scale) and self.scale > 0):
                raise InvalidInput(f"{where}: centre is {self.centre}, scale {self.scale}; allowed: finite, scale > 0")
            least, most = (0.0 if each is None else each for each in (self.least, self.most))
            if not (isfinite(least) and isfinite(most)) or (None not in (self.least, self.most) and least >= most):
                raise InvalidInput(f"{where}: least is {self.least}, most {self.most}; allowed: finite, least < most")
        elif self.log or {self.centre, self.scale, self.least, self.most} != {None} or not self.categories:
            raise InvalidInput(f"{where}: categorical; allowed: categories, and no centre, scale, log, least or most")
        elif len({each.strip() for each in self.categories}) < len(self.categories):
            raise InvalidInput(f"{where}: categories {self.categories} repeat; allowed: each once")

    def _check_text(self, where: str) -> None:
        if self.log or self.categories or {self.centre, self.scale, self.least, self.most} != {None}:
            raise InvalidInput(f"{where}: text; allowed: vectors and may_miss alone")
        if self.vectors is None:
            raise InvalidInput(f"{where}: text without vectors; allowed: vectors, such as {USUAL_VECTORS}")
        try:
            text_width(self.vectors)
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error}") from None

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        if self.vectors is not None:
            return text_width(self.vectors)
        return len(self.categories) if self.kind == "categorical" else 1 + self.may_miss

    @property
    def names(self) -> list[str]:
        """What each of them is, for a person."""
        if self.kind == "categorical":
            return [f"{self.column} {each}" for each in self.categories]
        numeric = [self.column, f"{self.column} missing"][: self.width]
        return [self.column] * self.width if self.kind == "text" else numeric

    def difference(self, place: int, by: float, deviations: float) -> str:
        """What two sets of records differ in, for a person. place: of one of the column's features; by: how much larger
        its mean is in the one than in the other; deviations: the same in standard deviations."""
        if self.kind == "text":
            return f"{self.column} has other words"
        if self.kind == "categorical" or place > 0:
            what = "missing" if self.kind == "numeric" else self.categories[place]
            return f"{self.column} is {what} {'more' if by > 0 else 'less'} often (by {100 * abs(by):.0f} % of records)"
        size = f"{abs(deviations):.2g} standard deviations"
        if not self.log and self.scale not in (None, 1.0):
            size = f"{abs(by) * float(self.scale or 1):.2g}, or {size}"
        if self.column.lower() == "age":
            return f"people are {'older' if by > 0 else 'younger'} (by {size})"
        return f"{self.column} is {'higher' if by > 0 else 'lower'} (by {size})"


def differences(columns: Sequence[Feature], found: Sequence[tuple[int, float, float]]) -> list[str]:
    """Of positions among all features of these columns, with what `difference` takes, the words; none without columns,
    and where a position is beyond them."""
    places = [(column, place) for column in columns for place in range(column.width)]
    if any(not 0 <= at < len(places) for at, *_ in found):
        return []
    return [places[at][0].difference(places[at][1], by, deviations) for at, by, deviations in found]


def is_printable(text: str) -> bool:
    """Whether a text holds nothing that a terminal might obey; hospitals' tables have blanks that do not break."""
    return text.replace("\N{NO-BREAK SPACE}", " ").isprintable()


def _check_printable(what: str, texts: Sequence[str]) -> None:
    """Raises InvalidInput for what a terminal might obey: a hospital reads these before it approves."""
    for each in texts:
        if not is_printable(each):
            raise InvalidInput(f"{what} has {each[:80]!r}; allowed: printable text")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a study that runs between organisations.

    task: one sentence; class_names: class 0 first; label: the column that holds them, "" for a count of one class;
    findings: the study's, where a record has several labels: each is a column, class_names are absent and present, and
    there is no label;
    input_shape: of one query;
    features: how a table's columns become inputs, empty for arrays and images; pool_size and pool_sha256: the public
    queries, see queries.pool_digest; deadline_s: seconds that a party has for a batch; coordinator: the name in the
    coordinator's certificate; ends: the last day (UTC, YYYY-MM-DD) on which a node answers; licence: under which the
    release may be used, None where nothing is said; misses: after how many batches that were released without a seat,
    which was late and may have been charged, the coordinator asks its operator whether to go on without it. Raises
    InvalidInput, with the value and the allowed range.
    """

    task: str
    class_names: tuple[str, ...]
    label: str
    input_shape: tuple[int, ...]
    pool_size: int
    pool_sha256: str
    deadline_s: float
    coordinator: str
    ends: str
    features: tuple[Feature, ...] = ()
    findings: tuple[str, ...] = ()
    licence: str | None = None
    misses: int = USUAL_MISSES

    def __post_init__(self) -> None:
        if self.findings and self.label:
            raise InvalidInput(f"terms: label is {self.label[:80]!r}; allowed with findings: none, as each is a column")
        # A count may be of no classes, and then has one column for everybody.
        without = self.findings or (not self.label and len(self.class_names) == 1)
        named = [] if without else [("label", self.label)]
        said = [] if self.licence is None else [("licence", self.licence)]
        for what, text in (("task", self.task), *named, *said):
            if not (text and text.isprintable() and len(text) <= 2000):
                raise InvalidInput(f"terms: {what} is {text[:80]!r}; allowed: printable text, up to 2000 characters")
        check_name(self.coordinator)
        if len(set(self.class_names)) < max(1, len(self.class_names)) or not all(self.class_names):
            raise InvalidInput(f"terms: class_names is {self.class_names}; allowed: names, each once")
        _check_printable("terms: class_names", self.class_names)
        for size in self.input_shape:
            check("study", "terms.input_shape", size)
        if not (self.input_shape and prod(self.input_shape) <= _LARGEST_INPUT):
            raise InvalidInput(
                f"terms: input_shape is {self.input_shape}; allowed: sizes >= 1, up to {_LARGEST_INPUT} values in all"
            )
        width = sum(feature.width for feature in self.features)
        if self.features and self.input_shape != (width,):
            raise InvalidInput(f"terms: input_shape is {self.input_shape}; allowed: ({width},), as features are wide")
        columns = self.columns
        if len(set(columns)) < len(columns):
            raise InvalidInput("terms: a column is named twice, or is a feature and a label; allowed: each once")
        check("study", "terms.pool_size", self.pool_size)
        check("study", "terms.misses", self.misses)
        if not re.fullmatch("[0-9a-f]{64}", self.pool_sha256):
            raise InvalidInput(f"terms: pool_sha256 is {self.pool_sha256[:80]!r}; allowed: 64 hexadecimal digits")
        if not 0.1 <= self.deadline_s <= 86_400:
            raise InvalidInput(f"terms: deadline_s is {self.deadline_s}; allowed: 0.1 to 86400 seconds")
        try:
            datetime.date.fromisoformat(self.ends)
        except ValueError:
            raise InvalidInput(f"terms: ends is {self.ends[:80]!r}; allowed: a day, YYYY-MM-DD") from None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a hospital's table needs: of the features, and of the labels, if there are any."""
        return (*(each.column for each in self.features), *self.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that hold labels: one, or one a finding; none where everybody is counted."""
        return self.findings or ((self.label,) if self.label else ())

    @property
    def predicted(self) -> str:
        """What labels say, for a person."""
        classes = ", ".join(self.class_names)
        return f"{', '.join(self.findings)} (each {' or '.join(self.class_names)})" if self.findings else classes

    def ended(self, today: datetime.date) -> bool:
        """Whether a node no longer answers. today: in UTC."""
        return today > datetime.date.fromisoformat(self.ends)
