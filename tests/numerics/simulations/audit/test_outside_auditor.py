"""A public auditor on our samples: its bound is near ours, and not above the exact epsilon."""

import numpy as np
import pytest

from simulations.audit.distinguishing import Samples, epsilon_lower_bound

pytest.importorskip("jax_privacy", reason="jax_privacy is not installed; it audits the same samples as a cross-check")


def test_jax_privacy_shows_about_what_our_bound_shows():
    from benchmarks.audit_outside import outside_lower_bound

    rng = np.random.default_rng(0)
    samples = Samples(rng.normal(1.0, 1.0, 50_000), rng.normal(0.0, 1.0, 50_000))
    theirs = outside_lower_bound(samples, delta=0.01, alpha=1e-4)
    ours = epsilon_lower_bound([samples], delta=0.01, alpha=1e-4).value
    assert theirs == pytest.approx(ours, rel=0.15)
