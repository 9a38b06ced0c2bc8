"""How teachers vote on a record with several findings (docs/explanation/mathematics.md, section 2.6).

Three ways of Dziedzic et al. 2023, arXiv 2211.15410: a row per finding (binary), a class per set of findings
(powerset), and one vector of all findings, clipped (tau). A study asks rows; a query has one row, or one per finding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final  # Any: the values of a study file

import numpy as np
from jaxtyping import Float64, Int64, Integer
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism, TauVoting
from protocols.mechanisms.tau import MOST_FINDINGS, entries, findings_of, set_of
from protocols.study.queries import QueryBatch
from protocols.votes import ABSTAIN, check_votes, count_votes

# Of a finding: not known, or not answered; absent; present.
UNKNOWN: Final = -1
# What is said of each finding of each query: UNKNOWN, 0 or 1.
_Said = Integer[ndarray, "... queries findings"]
# What teachers' models say of the queries of a batch.
Models = Callable[[QueryBatch], Integer[ndarray, "models queries"]]
# The most sets that are classes of one query.
_MOST_SETS: Final = 1000


@dataclass(frozen=True)
class Asked(ABC):
    """What one query asks of a teacher, and what its labels say.

    by: for files and flags; in_words: what a person is told of votes on several findings; rows: how many rows of a
    study a query is; classes: counts of a row; linear: whether weighted counts are weights times those of weight 1.
    """

    by: ClassVar[str]
    in_words: ClassVar[str] = ""
    rows: ClassVar[int] = 1
    linear: ClassVar[bool] = True

    @property
    @abstractmethod
    def classes(self) -> int | None:
        """The counts of a row; None where the study's classes determine it."""

    def check(self, mechanism: Mechanism, *, classes: int, findings: int) -> None:
        """Raises InvalidInput unless this mechanism can label rows of so many counts of these findings (0: a class)."""
        self._check_findings(findings)
        if findings and mechanism.interactive:
            raise InvalidInput(f"mechanism is {mechanism.name!r}; allowed with findings: one of a single round")
        if mechanism.names_sets:
            raise InvalidInput(f"mechanism is {mechanism.name!r}; allowed with findings_by {Tau.by!r} only")
        if self.classes not in (None, classes):
            raise InvalidInput(f"classes is {classes}; allowed with findings_by {self.by!r}: {self.classes}")

    @abstractmethod
    def _check_findings(self, findings: int) -> None:
        """Raises InvalidInput unless records have so many findings."""

    def labels(self, classes: int) -> int:
        """Every label of a row is below this number."""
        return classes

    def counts(
        self, votes: Integer[ndarray, "parties teachers rows"], weights: Float64[ndarray, " parties"], *, units: int,
        mechanism: Mechanism, classes: int,
    ) -> Float64[ndarray, "rows classes"]:  # fmt: skip
        """The weighted counts of each row, in votes: whole multiples of 1/units."""
        return count_votes(votes, weights, classes=classes)

    def whole(self, rows: int) -> int:
        """The most rows, of so many, that are whole queries; of one query at least."""
        return max(self.rows, rows - rows % self.rows)

    def of_models(self, votes: Integer[ndarray, "... models queries"]) -> Integer[ndarray, "... teachers rows"]:
        """The votes of teachers on rows, of what their models say of queries."""
        return votes

    def voted(self, batch: QueryBatch, models: Models) -> Integer[ndarray, "teachers rows"]:
        """What teachers say of the rows of a batch, whose models are asked about its queries, each once."""
        return self.of_models(models(batch))

    def folded(self, labels: Int64[ndarray, " rows"]) -> Int64[ndarray, "queries findings"] | None:
        """What labels say of each finding of each query: 0 or 1, ABSTAIN or NOT_ASKED; None of one class."""
        return None

    def truth(self, labels: Int64[ndarray, "queries *findings"]) -> Int64[ndarray, " rows"] | None:
        """The right label of each row; None where a row has none."""
        return labels

    @property
    def values(self) -> dict[str, Any]:
        """Its terms as plain values, by the keys of a study file."""
        return {"by": self.by, **{field.name: getattr(self, field.name) for field in fields(self)}}


@dataclass(frozen=True)
class OneClass(Asked):
    """A record has one class: a query is one row, and names it."""

    by: ClassVar[str] = "class"

    @property
    def classes(self) -> None:
        return None

    def _check_findings(self, findings: int) -> None:
        if findings:
            raise InvalidInput(f"{findings} findings; allowed where teachers vote: findings_by {', '.join(WAYS)}")


ONE_CLASS: Final = OneClass()


@dataclass(frozen=True)
class OnFindings(Asked):
    """A record has several findings, each absent or present. Raises InvalidInput for a number that cannot be.

    findings: how many.
    """

    findings: int

    def __post_init__(self) -> None:
        if not 2 <= self.findings <= MOST_FINDINGS:
            raise InvalidInput(f"{self.findings} findings; allowed where teachers vote: 2 to {MOST_FINDINGS}")

    def _check_findings(self, findings: int) -> None:
        if findings != self.findings:
            raise InvalidInput(f"{findings} findings; allowed with findings_by {self.by!r}: the {self.findings} of it")

    @abstractmethod
    def votes(self, said: _Said) -> Int64[ndarray, "... rows"]:
        """The votes of teachers that say this of each finding of each query."""

    def of_models(self, votes: Integer[ndarray, "... models queries"]) -> Integer[ndarray, "... teachers rows"]:
        said = votes.reshape(*votes.shape[:-2], -1, self.findings, votes.shape[-1])
        return self.votes(np.moveaxis(said, -2, -1))

    def truth(self, labels: Int64[ndarray, "queries *findings"]) -> None:
        return None

    @abstractmethod
    def folded(self, labels: Int64[ndarray, " rows"]) -> Int64[ndarray, "queries findings"]: ...

    @abstractmethod
    def unfolded(self, told: Int64[ndarray, "queries findings"]) -> Int64[ndarray, " rows"]:
        """The labels of which `folded` made this. Raises InvalidInput where no labels say it."""

    def _of_whole(self, told: _Said, labels: Int64[ndarray, " queries"]) -> Int64[ndarray, " queries"]:
        """The labels of queries of which all findings are told, or none, for one reason."""
        if ((told != told[:, :1]).any(axis=1) & (told < 0).any(axis=1)).any():
            raise InvalidInput("labels tell some findings of a query; allowed: all of them or none")
        return np.where(told[:, 0] < 0, told[:, 0], labels)


@dataclass(frozen=True)
class Binary(OnFindings):
    """Each finding of each query is a row of its own, with two classes: absent, present.

    Row q L + i is finding i of query q. A teacher that does not know a finding abstains from it. A record moves all
    findings, so a query costs what L rows do.
    """

    by: ClassVar[str] = "binary"
    in_words: ClassVar[str] = ", finding by finding, and each finding is paid for as a query"

    @property
    def rows(self) -> int:  # type: ignore[override]  # a query has a row per finding
        return self.findings

    @property
    def classes(self) -> int:
        return 2

    def votes(self, said: _Said) -> Int64[ndarray, "... rows"]:
        return said.reshape(*said.shape[:-2], -1).astype(np.int64)

    def voted(self, batch: QueryBatch, models: Models) -> Integer[ndarray, "teachers rows"]:
        queries, first, at = np.unique(batch.ids // self.rows, return_index=True, return_inverse=True)
        votes = self.of_models(models(QueryBatch(batch.number, queries, batch.inputs[first])))
        return votes[..., at * self.rows + batch.ids % self.rows]

    def folded(self, labels: Int64[ndarray, " rows"]) -> Int64[ndarray, "queries findings"]:
        return labels.reshape(-1, self.findings)

    def unfolded(self, told: Int64[ndarray, "queries findings"]) -> Int64[ndarray, " rows"]:
        return told.ravel()


@dataclass(frozen=True)
class Powerset(OnFindings):
    """Each named set of findings is a class of its own.

    sets: for each class the positions of its findings, increasing. A teacher whose set is not named votes for the
    nearest, by the number of findings in which they differ; of equally near ones for the first. What it does not know
    counts as absent.
    """

    sets: tuple[tuple[int, ...], ...]
    by: ClassVar[str] = "powerset"
    in_words: ClassVar[str] = ", for one of the sets of findings that the study names"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= len(set(self.sets)) == len(self.sets) <= _MOST_SETS:
            raise InvalidInput(f"{len(self.sets)} sets of findings; allowed: 2 to {_MOST_SETS}, all different")
        for each in self.sets:
            if list(each) != sorted(set(each)) or not set(each) <= set(range(self.findings)):
                raise InvalidInput(f"a set of findings is {each}; allowed: increasing, from 0 to {self.findings - 1}")

    @classmethod
    def occurring(cls, public: _Said) -> Powerset:
        """The sets that occur among public labels, the most frequent first, and the empty one."""
        seen, times = np.unique(set_of(_present(public)), return_counts=True)
        ordered = dict.fromkeys([*seen[np.argsort(-times, kind="stable")].tolist(), 0])
        bits = findings_of(np.array(list(ordered)[:_MOST_SETS], dtype=np.int64), findings=public.shape[-1])
        return cls(public.shape[-1], tuple(tuple(np.flatnonzero(each).tolist()) for each in bits))

    @property
    def classes(self) -> int:
        return len(self.sets)

    @property
    def table(self) -> Int64[ndarray, "sets findings"]:
        """0 or 1 for each finding of each set."""
        return np.array([[int(at in each) for at in range(self.findings)] for each in self.sets], dtype=np.int64)

    def votes(self, said: _Said) -> Int64[ndarray, "... rows"]:
        present, table = _present(said), self.table
        differing = present.sum(axis=-1)[..., None] + table.sum(axis=1) - 2 * (present @ table.T)
        nearest: Int64[ndarray, "... rows"] = differing.argmin(axis=-1)
        return nearest

    def folded(self, labels: Int64[ndarray, " rows"]) -> Int64[ndarray, "queries findings"]:
        return np.where((labels >= 0)[:, None], self.table[np.maximum(labels, 0)], labels[:, None])

    def unfolded(self, told: Int64[ndarray, "queries findings"]) -> Int64[ndarray, " rows"]:
        number = {one: at for at, one in enumerate(set_of(self.table).tolist())}
        named = np.array([number.get(one, UNKNOWN) for one in set_of(_present(told)).tolist()], dtype=np.int64)
        if (named[(told >= 0).all(axis=1)] < 0).any():
            raise InvalidInput("labels tell a set of findings that the study does not name; allowed: those of asks")
        return self._of_whole(told, named)


@dataclass(frozen=True)
class Tau(OnFindings):
    """One vote is a set of findings, as a number (bit i is finding i), clipped and counted finding by finding.

    What a teacher does not know counts as absent.
    """

    by: ClassVar[str] = "tau"
    in_words: ClassVar[str] = ", on all findings at once, and the more it says are present the less each counts"
    linear: ClassVar[bool] = False

    @property
    def classes(self) -> int:
        return self.findings

    def check(self, mechanism: Mechanism, *, classes: int, findings: int) -> None:
        self._check_findings(findings)
        _ = self._tau(mechanism)
        if classes != self.classes:
            raise InvalidInput(f"classes is {classes}; allowed with findings_by {self.by!r}: {self.classes}, a finding")

    def labels(self, classes: int) -> int:
        return 1 << classes

    def counts(
        self, votes: Integer[ndarray, "parties teachers rows"], weights: Float64[ndarray, " parties"], *, units: int,
        mechanism: Mechanism, classes: int,
    ) -> Float64[ndarray, "rows classes"]:  # fmt: skip
        check_votes(votes, classes=self.labels(classes))
        total, tau = np.zeros((votes.shape[2], classes), dtype=np.int64), self._tau(mechanism).tau
        for party in np.flatnonzero(weights):
            each = entries(round(float(weights[party]) * units), tau=tau, findings=classes)
            for said in votes[party]:
                bits = findings_of(np.where(said == ABSTAIN, 0, said).astype(np.int64), findings=classes)
                total += bits * each[bits.sum(axis=1)][:, None]
        return total / units

    def votes(self, said: _Said) -> Int64[ndarray, "... rows"]:
        return set_of(_present(said))

    def folded(self, labels: Int64[ndarray, " rows"]) -> Int64[ndarray, "queries findings"]:
        known = findings_of(np.maximum(labels, 0), findings=self.findings)
        return np.where((labels >= 0)[:, None], known, labels[:, None])

    def unfolded(self, told: Int64[ndarray, "queries findings"]) -> Int64[ndarray, " rows"]:
        return self._of_whole(told, set_of(_present(told)))

    def _tau(self, mechanism: Mechanism) -> TauVoting:
        if not isinstance(mechanism, TauVoting):
            raise InvalidInput(
                f"mechanism is {mechanism.name!r}; allowed with findings_by {self.by!r}: {TauVoting.name}"
            )
        return mechanism


WAYS: dict[str, type[OnFindings]] = {kind.by: kind for kind in (Binary, Powerset, Tau)}


def _present(said: _Said) -> Int64[ndarray, "... queries findings"]:
    return (said == 1).astype(np.int64)
