"""Hosts that tests make: links that are cut without a word or one way only, slowed and mended; nothing is left."""

import subprocess
import sys

import pytest

from tests.harness.clocks import wait_until
from tests.harness.hosts import Hosts, why_not

SERVER = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
while True:
    client, _ = server.accept()
    client.sendall(bytes(40_000))
    client.close()
"""
CLIENT = """
import socket, sys, time
began = time.monotonic()
try:
    client = socket.create_connection((sys.argv[1], 7000), timeout=2)
    while client.recv(40_000):
        pass
    print("slow" if time.monotonic() - began > 4 else "heard", client.getpeername()[0])
except (socket.gaierror, TimeoutError, ConnectionRefusedError) as error:
    print(type(error).__name__)
"""


def test_links_are_cut_one_way_or_both_slowed_and_mended_and_names_follow_a_host(tmp_path):
    if said := why_not():
        pytest.skip(said)
    with Hosts(tmp_path, ["east", "west", "centre"]) as hosts:
        server = subprocess.Popen(hosts.command("centre", sys.executable, "-c", SERVER))

        def asks(name: str) -> str:
            command = hosts.command(name, sys.executable, "-c", CLIENT, "centre")
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

        wait_until(lambda: asks("east") == "heard 10.213.0.3")
        hosts.cut("east")
        assert (asks("east"), asks("west")) == ("TimeoutError", "heard 10.213.0.3")
        hosts.mend("east")
        hosts.mute("west")
        assert (asks("east"), asks("west")) == ("heard 10.213.0.3", "TimeoutError")
        hosts.mend("west")
        hosts.slow("west", 64)
        assert (asks("east"), asks("west")) == ("heard 10.213.0.3", "slow 10.213.0.3")
        hosts.mend("west")
        hosts.forget("centre", of="east")
        assert (asks("east"), asks("west")) == ("gaierror", "heard 10.213.0.3")
        hosts.move("centre")
        assert asks("east") == asks("west") == "heard 10.213.0.4"
    assert server.wait(timeout=10), "it was ended with its host"
