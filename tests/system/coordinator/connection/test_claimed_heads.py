"""A certified hospital that makes up a head of the coordinator's log: its node runs against the real hub."""

import pytest

from protocols.ledger.audit_log import Head
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium
from tests.harness.studies import deployed_study

LIAR = "hospital-0"


@pytest.mark.parametrize("proof", [b"", b"not the coordinator's signature"], ids=["no proof", "a forged proof"])
def test_one_hello_with_a_head_that_never_existed_stops_nobody_but_its_sender(tmp_path, proof):
    with Consortium(deployed_study(4), tmp_path) as consortium:
        consortium.add_node(LIAR)
        consortium.ledgers[LIAR].log.remember("coordinator", Head(10**6, bytes(32)), proof=proof)
        consortium.ledgers[LIAR].close()
        consortium.start_all()
        wait_until(lambda: ("seat_refused", LIAR, "unproven_head") in named(consortium.events))
        consortium.unawaited.add(LIAR)
        labelled = consortium.label()
        assert (labelled.labels >= 0).any()
        assert set(labelled.refusals) == {LIAR}
        assert labelled.spent[0] == 0
        assert (labelled.spent[1:] > 0).all()


def named(events):
    return [(event, fields.get("party"), fields.get("code")) for event, fields in list(events)]
