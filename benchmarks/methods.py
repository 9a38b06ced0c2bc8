"""The methods that only stand in tables of `conclave-simulate baselines`: what each is, without what it imports.

pip install ./benchmarks
"""

from __future__ import annotations

from typing import Final

from simulations.baselines import Method

_CURATOR: Final = "a curator of all records"
FEDAVG: Final = Method(
    "benchmarks.federated:fedavg",
    "federated averaging of a softmax regression",
    "", "a server that sees every party's model", "McMahan et al. 2017, Algorithm 1",
)  # fmt: skip
DP_SGD: Final = Method(
    "benchmarks.linear:dp_sgd_score",
    "DP-SGD of a softmax regression, on pooled records",
    "record", _CURATOR, "Abadi et al. 2016, Algorithm 1",
)  # fmt: skip
DP_SGD_ROUNDS: Final = Method(
    "benchmarks.linear:dp_sgd_rounds",
    "the same of the parties' sums, in 30 rounds",
    "record", "nobody, if the sums of gradients are secure", "Truex et al. 2019, A hybrid approach",
)  # fmt: skip
DP_SGD_CNN: Final = Method(
    "benchmarks.dp_sgd_cnn:dp_sgd_cnn",
    "DP-SGD of a small convolutional network, on pooled images",
    "record", _CURATOR, "Papernot et al. 2021, Tempered sigmoid activations",
)  # fmt: skip
IDP_SGD: Final = Method(
    "benchmarks.linear:idp_sgd_score",
    "dp_sgd in which 34 % of the records have epsilon, 43 % twice and 23 % three times as much",
    "record", _CURATOR, "Boenisch et al. 2023, Have it your way, the method Scale",
)  # fmt: skip
GRADED_UNEQUAL: Final = Method(
    "benchmarks.linear:graded_unequal",
    "graded_votes in which 34 % of the parties have epsilon, 43 % twice and 23 % three times as much",
    "record", "nobody, if the sums are secure", "docs/explanation/record-votes.md",
)  # fmt: skip
ADASSP: Final = Method(
    "benchmarks.linear:adassp_score",
    "least squares of noisy sufficient statistics, of pooled records",
    "record", _CURATOR, "Wang 2018, Algorithm 2",
)  # fmt: skip
DP_EBM: Final = Method(
    "benchmarks.dp_ebm:dp_ebm",
    "boosted trees of one column each, with noise on their sums, of pooled records of tables",
    "record", _CURATOR, "Nori et al. 2021, Algorithm 2",
)  # fmt: skip
OUTPUT_PERTURBATION: Final = Method(
    "benchmarks.federated:output_perturbation",
    "a softmax regression of pooled records with noise on its weights",
    "record", _CURATOR, "Chaudhuri et al. 2011, Algorithm 1",
)  # fmt: skip
DP_FEDAVG: Final = Method(
    "benchmarks.federated:dp_fedavg",
    "federated averaging of a softmax regression, with clipped updates and noise on their sum",
    "party", "nobody, if the sums of updates are secure", "McMahan et al. 2018, Algorithm 1",
)  # fmt: skip
DP_FTRL: Final = Method(
    "benchmarks.federated:dp_ftrl",
    "as dp_fedavg, with a quarter of the parties in a round and noise on running sums",
    "party", "nobody, if the sums of updates are secure", "Kairouz et al. 2021, Algorithm 1",
)  # fmt: skip
