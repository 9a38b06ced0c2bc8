"""What an engine carried: each is started once for all the tests that look at it."""

import pytest

from simulations.engines import ENGINES
from tests.harness.carried_studies import carried_by


@pytest.fixture(scope="session", params=ENGINES)
def carried(request, tmp_path_factory):
    """What studies of every level released over one engine; see tests/harness/carried_studies.py."""
    return carried_by(request.param, tmp_path_factory.mktemp("studies"))
