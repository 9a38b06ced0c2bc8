"""What an engine carried, and the process that forks programs: each is started once for all tests that need it."""

import subprocess

import pytest

from simulations.engines import ENGINES
from tests.harness.carried_studies import carried_by
from tests.harness.forking import Forked, forking


@pytest.fixture(scope="session", params=ENGINES)
def carried(request, tmp_path_factory):
    """What studies of every level released over one engine; see tests/harness/carried_studies.py."""
    return carried_by(request.param, tmp_path_factory.mktemp("studies"))


@pytest.fixture(scope="session")
def forking_address():
    """Where the process listens that forks programs; see tests/harness/forking.py."""
    with forking() as address:
        yield address


@pytest.fixture(scope="module")
def forked(forking_address):
    """Programs that the tests of a module start are forked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forked, "address", forking_address, raising=False)
        patch.setattr(subprocess, "Popen", Forked)
        yield
