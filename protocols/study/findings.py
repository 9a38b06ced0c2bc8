"""What a record of a study is labelled with: one class, or several findings at once, each absent, present or unknown.

Each of the two types answers for what differs: how many columns a sum of units has, how many of them a record fills,
and which arrays are labels. Nobody else asks which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.errors import InvalidInput

NOT_KNOWN, ABSENT, PRESENT = -1, 0, 1
# What the two classes of a finding are called, in this order.
STATES: Final = ("absent", "present")
_FEWEST, MOST = 2, 64
_LONGEST_NAME = 200

_Labels = Int64[ndarray, "records *findings"]


@dataclass(frozen=True)
class OneLabel:
    """Each record is of one class, or of none that is known: labels are (records,), 0 to classes - 1.

    names: of findings, none.
    """

    classes: int
    names: ClassVar[tuple[str, ...]] = ()

    @property
    def states(self) -> int:
        """How many things one label may say: the classes, or whether there is a finding."""
        return self.classes

    def columns(self, *, signed: bool) -> int:
        """How many columns a sum of units has. signed: whether phi has entries below 0."""
        return self.classes

    def heads(self, columns: int) -> list[str]:
        """What these columns of a file are called: of a sum, or of what is said of a record of the pool."""
        return [f"class_{number}" for number in range(columns)]

    @property
    def said(self) -> int:
        """How many probabilities a record of the pool has."""
        return self.classes

    def filled(self, *, signed: bool) -> int:
        """How many of them a record fills in each row of phi that is not 0."""
        return self.classes if signed else 1

    @property
    def told(self) -> int:
        """How many labels a record has, of one length each."""
        return 1

    def known(self, labels: _Labels) -> Bool[ndarray, " records"]:
        """Which records have a label, or one at least. Raises InvalidInput unless the array may be labels."""
        if labels.ndim != 1 or labels.max(initial=0) >= self.classes:
            raise InvalidInput(
                f"labels of shape {labels.shape} up to {labels.max(initial=0)}; allowed: one of {self.classes} classes "
                "for each record"
            )
        found: Bool[ndarray, " records"] = labels >= 0
        return found


@dataclass(frozen=True)
class SeveralFindings:
    """Each record has several findings: labels are (records, findings) of NOT_KNOWN, ABSENT and PRESENT.

    names: public, in the order of the columns of labels. A unit's sum has for each finding a column of +1 (present) and
    -1 (absent) over the root of their number, 0 where it is not known; or, where phi has no entry below 0, a column of
    how many have it and one of how many do not (docs/explanation/mathematics.md).
    """

    names: tuple[str, ...]

    @property
    def states(self) -> int:
        return len(STATES)

    def columns(self, *, signed: bool) -> int:
        return len(self.names) * (1 if signed else len(STATES))

    def heads(self, columns: int) -> list[str]:
        if columns == len(self.names):
            return list(self.names)
        return [f"{name} {state}" for name in self.names for state in STATES]

    @property
    def said(self) -> int:
        return len(self.names)

    def filled(self, *, signed: bool) -> int:
        return len(self.names)

    @property
    def told(self) -> int:
        return len(self.names)

    def known(self, labels: _Labels) -> Bool[ndarray, " records"]:
        if labels.ndim != 2 or labels.shape[1] != len(self.names) or not np.isin(labels, (-1, 0, 1)).all():
            raise InvalidInput(
                f"labels of shape {labels.shape} from {labels.min(initial=0)} to {labels.max(initial=0)}; allowed: "
                f"{len(self.names)} findings for each record, -1 unknown, 0 absent, 1 present"
            )
        found: Bool[ndarray, " records"] = (labels != NOT_KNOWN).any(axis=1)
        return found


Labelled = OneLabel | SeveralFindings


def labelled(findings: tuple[str, ...], classes: int) -> Labelled:
    """What records are labelled with: these findings, or one of `classes` where none are named.

    Raises InvalidInput for one finding, or names that are no printable text or repeat.
    """
    if not findings:
        return OneLabel(classes)
    if not _FEWEST <= len(findings) <= MOST:
        raise InvalidInput(f"{len(findings)} findings; allowed: {_FEWEST} to {MOST}, or none for a label of classes")
    for name in findings:
        if not (name and name.isprintable() and name.strip() == name and len(name) <= _LONGEST_NAME):
            raise InvalidInput(
                f"the finding {name[:80]!r}; allowed: printable text of up to {_LONGEST_NAME} characters, without "
                "blanks around it"
            )
    if len(set(findings)) < len(findings):
        twice = next(name for name in findings if findings.count(name) > 1)
        raise InvalidInput(f"the finding {twice!r} is named twice; allowed: each once")
    return SeveralFindings(findings)
