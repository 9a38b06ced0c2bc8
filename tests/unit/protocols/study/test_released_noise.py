"""A warning of noise that hides the votes counts the noise that is released, not that which is accounted for."""

from dataclasses import replace

import pytest

from protocols.mechanisms import GNMax
from protocols.study.released_noise import noise_in, thin_queries
from tests.harness.deployed_records import draft
from tests.harness.levels import two_server


def test_a_warning_counts_all_the_noise_in_a_sum():
    study = draft()
    held = study.records.held
    clear = replace(study, mechanism=GNMax(sigma=0.9 * held))
    assert thin_queries(clear) is None
    # Each of two servers adds all of sigma.
    shared = replace(draft(level=two_server()), mechanism=clear.mechanism)
    assert noise_in(shared) == pytest.approx(2**0.5 * 0.9 * held)
    assert thin_queries(shared).startswith(f"a query holds about {held:.3g} votes")
