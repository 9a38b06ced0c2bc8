"""What else can be done with the same records at the same epsilon: each method by name, one file each.

Every method learns from the private records of one split, and is scored on its test records. Nothing here imports the
packages of a method until the method is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# A method whose epsilon covers what --unit says.
OF_STUDY: Final = "the unit"


@dataclass(frozen=True)
class Method:
    """One method. where: "module:function", which takes a Task and returns a Score.

    protects: whose data its epsilon covers: one "record", all of a "party", OF_STUDY, or "" without privacy; trusted:
    who sees records in the clear; source: the paper, "" for none.
    """

    where: str
    meaning: str
    protects: str
    trusted: str
    source: str

    @property
    def private(self) -> bool:
        """Whether it has an epsilon."""
        return self.protects != ""


METHODS: Final[dict[str, Method]] = {
    "majority": Method(
        "simulations.baselines.methods:majority",
        "the most frequent class of the private records, for every test record",
        "", "a curator of all records", "",
    ),
    "alone": Method(
        "simulations.baselines.methods:alone",
        "each party's model of its own records; the mean over parties",
        "", "nobody", "",
    ),
    "pooled": Method(
        "simulations.baselines.methods:pooled",
        "the student's kind of model of all private records with their true labels",
        "", "a curator of all records", "",
    ),
    "pooled_linear": Method(
        "simulations.baselines.methods:pooled_linear",
        "a logistic regression of all private records with their true labels, on features of images",
        "", "a curator of all records", "",
    ),
    "fedavg": Method(
        "simulations.baselines.federated:fedavg",
        "federated averaging of a softmax regression",
        "", "a server that sees every party's model", "McMahan et al. 2017, Algorithm 1",
    ),
    "pate": Method(
        "simulations.baselines.methods:teacher_votes",
        "a student of the labels that the parties' teachers release",
        OF_STUDY, "the coordinator, with votes", "Papernot et al. 2018",
    ),
    "record_votes": Method(
        "simulations.baselines.methods:record_votes",
        "a student of the soft labels that the parties' records release",
        OF_STUDY, "the coordinator, with sums of votes", "docs/explanation/record-votes.md",
    ),
    "dp_sgd": Method(
        "simulations.baselines.dp_sgd:dp_sgd",
        "DP-SGD of a softmax regression, on pooled records",
        "record", "a curator of all records", "Abadi et al. 2016, Algorithm 1",
    ),
    "dp_sgd_cnn": Method(
        "simulations.baselines.dp_sgd:dp_sgd_cnn",
        "DP-SGD of a small convolutional network, on pooled images",
        "record", "a curator of all records", "Papernot et al. 2021, Tempered sigmoid activations",
    ),
    "output_perturbation": Method(
        "simulations.baselines.federated:output_perturbation",
        "a softmax regression of pooled records with noise on its weights",
        "record", "a curator of all records", "Chaudhuri et al. 2011, Algorithm 1",
    ),
    "dp_fedavg": Method(
        "simulations.baselines.federated:dp_fedavg",
        "federated averaging of a softmax regression, with clipped updates and noise on their sum",
        "party", "nobody, if the sums of updates are secure", "McMahan et al. 2018, Algorithm 1",
    ),
    "dp_ftrl": Method(
        "simulations.baselines.federated:dp_ftrl",
        "as dp_fedavg, with a quarter of the parties in a round and noise on running sums",
        "party", "nobody, if the sums of updates are secure", "Kairouz et al. 2021, Algorithm 1",
    ),
}  # fmt: skip
