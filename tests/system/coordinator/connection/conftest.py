"""Nodes of these tests try again, and the hub looks who was denied, after hundredths of seconds."""

import pytest


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("party.connection.node._FIRST_WAIT_S", 0.02)
    monkeypatch.setattr("coordinator.connection.hub.DENY_POLL_S", 0.02)
