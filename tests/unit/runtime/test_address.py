import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import InvalidInput
from runtime.address import check_address, listening
from tests.harness.refusals import refuses


@given(st.text(max_size=30) | st.from_regex(r"[a-z0-9.]+:[0-9]{1,6}", fullmatch=True), st.booleans())
def test_an_address_is_a_host_and_a_port_or_is_refused(text, listens):
    host, port = "h", "1"
    with contextlib.suppress(InvalidInput):
        host, _, port = check_address("address", text, listens=listens).rpartition(":")
    assert host
    assert (0 if listens else 1) <= int(port) <= 65_535


def test_a_free_port_can_be_listened_on_and_not_dialled():
    assert check_address("listen", "127.0.0.1:0", listens=True) == "127.0.0.1:0"
    with refuses(InvalidInput, "address", "127.0.0.1:0"):
        check_address("address", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("127.0.0.1:7", "127.0.0.1:7"),
        ("localhost:7", "127.0.0.1:7"),
        ("[::1]:7", "[::1]:7"),
        ("c.example.org:7", "0.0.0.0:7"),
        ("10.0.0.1:7", "0.0.0.0:7"),
    ],
)
def test_an_address_of_this_machine_alone_is_listened_on_there_alone(address, where):
    assert listening(address) == where
