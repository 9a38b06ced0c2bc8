"""What an engine carried, and the process that forks programs: each is started once for all tests that need it."""

import functools
import subprocess

import pytest

from simulations.engines import ENGINES
from tests.harness.carried_studies import carried_by
from tests.harness.forking import Forked, forking


@pytest.fixture(scope="session")
def carried_of(tmp_path_factory):
    """What one run of the engine of that name carried; see tests/harness/carried_studies.py."""
    return functools.cache(lambda engine: carried_by(engine, tmp_path_factory.mktemp("studies")))


@pytest.fixture(scope="session", params=ENGINES)
def carried(request, carried_of):
    """`carried_of` each engine."""
    return carried_of(request.param)


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
