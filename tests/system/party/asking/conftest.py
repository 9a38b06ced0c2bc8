"""A consortium on loopback in which a hospital may ask, with all its nodes and its guardian."""

import pytest

from tests.harness.askers import AskedConsortium, asked_study


@pytest.fixture
def consortium(tmp_path):
    with AskedConsortium(asked_study(), tmp_path) as made:
        made.start_all()
        yield made
