"""What an accountant charges for a mechanism that names it and proves nothing of its kind."""

from dataclasses import dataclass

import numpy as np
import pytest

from protocols.budgets.accountant import ACCOUNTANTS, default_accountant
from protocols.errors import InvalidInput
from protocols.mechanisms import GNMax, LNMax, Sensitivity
from protocols.research.data_dependent import Moments2017, QueryVotes, Units


@dataclass(frozen=True, kw_only=True)
class Boastful(LNMax):
    """A whole mechanism, not Gaussian, that names accountants whose bounds it does not prove."""

    name = "boastful"

    @classmethod
    def accountants(cls, *, view, on_lattice, secret_coins):
        return ("label_only", "gaussian_dp")


def test_bounds_that_a_mechanism_names_but_does_not_prove_are_refused():
    mechanism = Boastful(gamma=0.1)
    with pytest.raises(InvalidInput, match="no accountant holds"):
        default_accountant(mechanism, "label")
    for name in ("label_only", "gaussian_dp"):
        with pytest.raises(InvalidInput, match="no accountant holds"):
            ACCOUNTANTS[name].query_cost(
                mechanism, Sensitivity.always(np.ones(1), delta_squared=2), view="label", classes=10
            )


def test_moments_of_laplace_noise_are_refused_for_other_noise():
    votes = QueryVotes(
        mechanism=GNMax(sigma=40.0),
        counts=np.ones((1, 2)),
        abstentions=False,
        answered=np.ones(1, bool),
        student_votes=None,
    )
    units = Units(
        sensitivity=np.ones(1), cast=np.ones(2), delta=np.full(1, 1e-5), present=np.ones((1, 1), bool), own_votes=None
    )
    with pytest.raises(InvalidInput, match="'moments2017' does not hold for gnmax; allowed: lnmax"):
        Moments2017().figures(votes, units)
