"""What else can be done with the same records at the same epsilon: each method by name.

Every method learns from the private records of one split, and is scored on its test records. Nothing here imports the
packages of a method until the method is run. `pip install ./benchmarks` adds those that only stand in tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocols.errors import InvalidInput
from protocols.plugins import Parts

# A method whose epsilon covers what --unit says.
OF_STUDY: Final = "the unit"


@dataclass(frozen=True)
class Method:
    """One method. where: "module:function", which takes a Task and returns a Score.

    protects: whose data its epsilon covers: one "record", all of a "party", OF_STUDY, or "" without privacy; trusted:
    who sees records in the clear; source: the paper, "" for none; findings: whether it may learn several of a record.
    """

    where: str
    meaning: str
    protects: str
    trusted: str
    source: str
    findings: bool = False

    @property
    def private(self) -> bool:
        """Whether it has an epsilon."""
        return self.protects != ""


def _check(name: str, loaded: object) -> Method:
    if not isinstance(loaded, Method):
        raise InvalidInput(f"it is {loaded!r}; allowed: a Method")
    return loaded


_OWN: Final = {
    "majority": Method(
        "simulations.baselines.methods:majority",
        "the most frequent class of the private records, for every test record",
        "", "a curator of all records", "", findings=True,
    ),
    "alone": Method(
        "simulations.baselines.methods:single_party",
        "each party's model of its own records; the mean over parties",
        "", "nobody", "", findings=True,
    ),
    "pooled": Method(
        "simulations.baselines.methods:pooled",
        "the student's kind of model of all private records with their true labels",
        "", "a curator of all records", "", findings=True,
    ),
    "pooled_linear": Method(
        "simulations.baselines.methods:pooled_linear",
        "a logistic regression of all private records with their true labels, on features of images",
        "", "a curator of all records", "", findings=True,
    ),
    "pate": Method(
        "simulations.baselines.methods:labels_of_teachers",
        "a student of the labels that the parties' teachers release",
        OF_STUDY, "the coordinator, with votes", "Papernot et al. 2018", findings=True,
    ),
    "record_votes": Method(
        "simulations.baselines.methods:record_votes",
        "a student of the soft labels that records release by votes in cells",
        OF_STUDY, "the coordinator, with sums of votes", "docs/explanation/record-votes.md", findings=True,
    ),
    "graded_votes": Method(
        "simulations.baselines.methods:graded_votes",
        "the usual student of sums of records' graded features, or their scores",
        OF_STUDY, "the coordinator, with sums of votes", "docs/explanation/record-votes.md", findings=True,
    ),
    "graded_twice": Method(
        "simulations.baselines.methods:graded_twice",
        "graded_votes in two sums: the second of how far the first one's scores are from labels",
        OF_STUDY, "the coordinator, with sums of votes", "docs/explanation/record-votes.md",
    ),
}  # fmt: skip

# To add a method: a plugin (docs/how-to/add-a-part.md).
METHODS: Final[Parts[Method]] = Parts("method", _OWN, group="conclave.baselines", check=_check)
