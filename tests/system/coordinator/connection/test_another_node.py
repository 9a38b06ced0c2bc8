"""Two nodes of one party: the living one that serves seats stays, and nobody is shut out for ever."""

import asyncio
import threading

import pytest

from coordinator.connection import hub
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium
from tests.harness.forwarding import Forwarder
from tests.harness.refusals import refused_for
from tests.harness.studies import deployed_study

NAME = "hospital-0"


@pytest.fixture
def consortium(tmp_path):
    with Consortium(deployed_study(1), tmp_path) as made:
        made.add_node(NAME)
        yield made


def run_beside(consortium, label, *, seats=None):
    """Another node of the same party; without seats: a home that was copied to another path."""
    node = consortium.node(NAME)
    if seats is not None:
        node._list_seats = lambda: seats
    node._on_event = lambda event, fields: consortium.events.append((event, {"node": label, **fields}))
    stop = consortium.stops[label] = threading.Event()
    consortium.threads[label] = threading.Thread(target=node.run, args=(stop,))
    consortium.threads[label].start()


def said(consortium, event, **wanted):
    return [fields for happened, fields in consortium.events if happened == event and wanted.items() <= fields.items()]


def connect(consortium):
    consortium.start_node(NAME)
    assert consortium.hub.wait_for(frozenset({NAME}), timeout_s=300) == frozenset()


@pytest.mark.parametrize("seats", [None, []])
def test_a_living_node_stays_and_one_beside_it_is_refused_and_backs_off(consortium, seats):
    connect(consortium)
    since = consortium.hub.connected()[NAME].since
    run_beside(consortium, "copy", seats=seats)
    wait_until(lambda: len(said(consortium, "goodbye", node="copy", code="another_node")) >= 3)
    assert consortium.hub.connected()[NAME].since == since
    assert said(consortium, "connected", node="copy") == []
    assert said(consortium, "goodbye", node=NAME) == []
    reason = said(consortium, "goodbye", node="copy")[0]["reason"]
    assert f"another node answers as '{NAME}'" in reason
    assert "stop it" in reason
    times = [fields["times"] for fields in said(consortium, "turned_away", code="another_node", party=NAME)]
    assert times == [1, 2, 4]  # logged ever more seldom, with a count, here as at the node
    assert [fields["times"] for fields in said(consortium, "goodbye", node="copy")] == [1, 2, 4]
    assert consortium.label().refusals == {}


def test_a_node_without_seats_gives_way_to_one_that_serves_some_and_does_not_come_back(consortium):
    run_beside(consortium, "copy", seats=[])
    assert consortium.hub.wait_for(frozenset({NAME}), timeout_s=300) == frozenset()
    consortium.start_node(NAME)
    wait_until(lambda: said(consortium, "goodbye", node="copy", code="another_node"))
    assert said(consortium, "goodbye", node="copy")[0]["code"] == "superseded"
    assert len(said(consortium, "connected", node="copy")) == 1
    assert consortium.label().refusals == {}


def test_when_the_living_node_ends_the_other_is_taken(consortium):
    connect(consortium)
    run_beside(consortium, "copy")
    wait_until(lambda: said(consortium, "goodbye", node="copy", code="another_node"))
    consortium.stop_node(NAME)
    wait_until(lambda: said(consortium, "connected", node="copy"))


def test_a_node_that_is_started_again_comes_back_at_once(consortium):
    connect(consortium)
    for _ in range(5):
        consortium.stop_node(NAME)
        connect(consortium)
    assert len(said(consortium, "goodbye", node=NAME, code="another_node")) <= 5  # the end of its stream was on its way


class Silent(Forwarder):
    """Forwards until it is silent: then nothing more passes, and nothing is closed."""

    silent = False

    async def _forward(self, reader, writer, shared):
        while data := await reader.read(2048):
            if not self.silent:
                writer.write(data)
                await writer.drain()
        await asyncio.Event().wait()  # not even its end is passed on


def test_a_node_whose_line_went_dead_is_found_gone_and_its_successor_is_taken(tmp_path, monkeypatch):
    quick = dict.fromkeys(("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"), 1000)
    monkeypatch.setattr(hub, "NODE_OPTIONS", [(key, quick.get(key, value)) for key, value in hub.NODE_OPTIONS])
    with Consortium(deployed_study(1), tmp_path) as consortium, Silent(consortium.address) as line:
        consortium.add_node(NAME)
        direct, consortium.address = consortium.address, line.address
        connect(consortium)
        consortium.address = direct
        line.silent = True
        run_beside(consortium, "successor")
        wait_until(lambda: said(consortium, "connected", node="successor"))
        assert said(consortium, "goodbye", node="successor", code="another_node")
        assert consortium.label().refusals == {}


def test_a_party_that_is_at_fault_again_and_again_is_refused_whatever_it_connects_with(consortium, monkeypatch):
    admission = consortium.hub._admission
    for _ in range(200):
        admission.fault(NAME)
    with refused_for("too_many_faults"), admission.stream(NAME):
        pass
    with admission.stream("hospital-1"):
        pass
    consortium.start_node(NAME)
    wait_until(lambda: "too_many_faults" in consortium.codes("goodbye"))
    assert consortium.hub.connected() == {}
