"""A consortium and a release of it, as the tests of releases in one process have them."""

from tests.contract.coordinator.release.conftest import signed as signed
