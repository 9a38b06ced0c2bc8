"""Six parties, a coordinator and a guardian whose ledgers last for one test."""

import pytest

from tests.harness.guardian_attempts import World


@pytest.fixture
def world():
    made = World()
    yield made
    made.close()
