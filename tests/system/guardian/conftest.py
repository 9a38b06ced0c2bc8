"""A guardian's port over mutual TLS, opened once for the tests of a file that leave it as it was."""

import pytest

from tests.harness.guardians import Guardianship


@pytest.fixture(scope="module")
def served():
    """One port for the tests that leave it as it was: its world and the coordinator's line to it."""
    world = Guardianship()
    with world.open() as line:
        yield world, line
