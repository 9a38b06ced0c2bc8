"""The largest share of votes that can be expected to agree, from public settings and sizes alone.

A party that holds no record of a class cannot name it. Under label skew (partition dirichlet:A) the share of a class
that has the share p of all records is Beta(A p, A (1 - p)) at each party, so that of m records none is of that class
with probability B(A p, A (1 - p) + m) / B(A p, A (1 - p)) (the Beta-binomial law). The rest is the most that can agree.
Classes are taken to be equally frequent. For other partitions nothing is assumed: all votes may agree.
"""

from __future__ import annotations

from math import exp

import scipy

from simulations.setup.experiment import Experiment
from simulations.setup.partition import LabelSkew, parse_partition
from simulations.stages.inputs import DatasetInputs, Inputs


def agreement_of(settings: Experiment, inputs: Inputs) -> float:
    """`expected_agreement` of these settings with the data of `inputs`; 1 for stored votes and pooled data."""
    if not isinstance(inputs, DatasetInputs) or settings.individualization == "upsampling":
        return 1.0
    records = len(inputs.dataset.private_labels)
    return expected_agreement(settings, classes=inputs.classes, private_records=records)


def expected_agreement(settings: Experiment, *, classes: int, private_records: int) -> float:
    """The largest share of votes that can be expected to agree, in [1/classes, 1]: see the module's docstring.

    private_records: of all parties together. 1 unless the partition is dirichlet:A.
    """
    scheme = parse_partition(settings.partition)
    if not isinstance(scheme, LabelSkew):
        return 1.0
    records = private_records / (settings.parties * settings.teachers_per_party)
    first, second = scheme.concentration / classes, scheme.concentration * (1 - 1 / classes)
    without = exp(scipy.special.betaln(first, second + records) - scipy.special.betaln(first, second))
    return max(1 / classes, 1.0 - without)
