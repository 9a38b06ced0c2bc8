import shutil

import pytest

from tests.harness.released import Consortium, small_study


@pytest.fixture(scope="session")
def signed(tmp_path_factory):
    """A consortium and a release of it, not to be written to."""
    folder = tmp_path_factory.mktemp("consortium")
    consortium = Consortium(folder)
    labelled = consortium.label(small_study())
    return consortium, labelled, consortium.release(labelled, folder / "release")


@pytest.fixture
def copy(signed, tmp_path):
    """A copy of that release, to be altered."""
    return shutil.copytree(signed[2], tmp_path / "copy")
