"""Stored votes in a working folder of the test's own."""

import numpy as np
import pytest

from tests.harness.engine_here import here as here
from tests.harness.studies import make_votes
from tests.harness.undrawn import undrawn as undrawn

VOTES, TRUTH = make_votes(60, 400)


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Stored votes and labels in the working folder, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))
    np.save("votes.npy", VOTES[:, 0])
    np.save("truth.npy", TRUTH)
    return ["--votes", "votes.npy", "--votes-kind", "ids", "--labels", "truth.npy", "--quiet"]
