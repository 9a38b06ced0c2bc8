"""A node whose disk was full when it was told an outcome: it dials again by itself, and settles."""

from party.connection import node
from protocols.errors import StorageFailed
from protocols.wire.messages import Outcome
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium
from tests.harness.studies import deployed_study


def test_an_outcome_that_could_not_be_written_is_told_again_while_the_coordinator_serves(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "_UNWRITTEN_S", 0.0)
    full = [True]
    with Consortium(deployed_study(1, pool=5), tmp_path) as consortium:
        party = consortium.add_node("hospital-0")
        handle = party.handle

        def handled(request):
            if isinstance(request, Outcome) and full:
                full.clear()
                raise StorageFailed("ledger: database or disk is full")
            return handle(request)

        party.handle = handled
        consortium.start_node("hospital-0")
        consortium.label()
        last = consortium.ledger.last_settled("hospital-0").number
        wait_until(lambda: consortium.ledger.log.kept(last, "hospital-0", "settled"))
    assert not full
    assert [fields["reason"] for event, fields in consortium.events if event == "dials_again"]
