"""A consortium whose members are upgraded one by one: what a newer and an older side do with each other."""

import pytest

from coordinator.connection import hub
from party.connection import node
from protocols.errors import Refused
from protocols.wire import frames
from runtime.exits import Exit, show_error
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium
from tests.harness.refusals import refuses
from tests.harness.studies import deployed_study

NAME = "hospital-0"
# The version that there is, and one before and one after it, which speak as this one does: only the choice is tested.
OLD, NOW, BOTH = (1,), (2,), (2, 1)


@pytest.fixture
def upgraded(tmp_path, monkeypatch):
    """Starts a consortium of one hospital; coordinator, party: the wire versions that each speaks."""
    made = []

    def start(coordinator, party):
        monkeypatch.setattr(frames, "WIRE_VERSIONS", coordinator)
        monkeypatch.setattr(node, "WIRE_VERSIONS", party)
        consortium = Consortium(deployed_study(1), tmp_path).__enter__()
        made.append(consortium)
        consortium.add_node(NAME)
        consortium.start_node(NAME)
        return consortium

    yield start
    for consortium in made:
        consortium.__exit__()


@pytest.mark.parametrize(
    ("coordinator", "party"), [(BOTH, OLD), (OLD, BOTH)], ids=["the coordinator is newer", "the node is newer"]
)
def test_two_that_share_a_version_label_as_ever(upgraded, coordinator, party):
    consortium = upgraded(coordinator, party)
    assert consortium.hub.wait_for(frozenset({NAME}), timeout_s=300) == frozenset()
    # The coordinator counts a node as connected before the node has read its welcome.
    wait_until(lambda: [f["version"] for event, f in consortium.events if event == "connected" and "node" in f] == [1])
    assert consortium.label().refusals == {}
    assert consortium.ledgers[NAME].balance(NAME).spent > 0


@pytest.mark.parametrize(
    ("coordinator", "party", "said"),
    [(NOW, OLD, ("[1]", "[2]")), (OLD, NOW, ("[2]", "[1]"))],
    ids=["the coordinator is newer", "the node is newer"],
)
def test_two_that_share_none_end_with_one_message_and_nothing_is_spent(upgraded, capsys, coordinator, party, said):
    consortium = upgraded(coordinator, party)
    wait_until(lambda: NAME in consortium.ended)
    assert consortium.ended[NAME] == "wire_version"  # the node does not dial again
    reasons = [fields["reason"] for event, fields in consortium.events if event == "goodbye" and "node" in fields]
    assert len(reasons) == 1
    with refuses(Refused, *said) as refused:
        raise Refused(consortium.ended[NAME], reasons[0])
    assert show_error(refused.value) == Exit.REFUSED
    assert "update the older software" in capsys.readouterr().err
    assert consortium.hub.connected() == {}
    assert consortium.ledgers[NAME].balance(NAME).spent == 0


def test_a_coordinator_that_answers_with_a_version_that_was_not_offered_is_left(upgraded, monkeypatch):
    monkeypatch.setattr(hub, "agree_version", lambda offered: 3)
    consortium = upgraded(OLD, OLD)
    wait_until(lambda: NAME in consortium.ended)
    assert consortium.ended[NAME] == "wire_version"
    assert consortium.ledgers[NAME].balance(NAME).spent == 0
