"""A server that garbles another circuit, end to end: a real Guardian and a real SharedAggregation, one of them changed.

No label comes out, nothing is signed, and both logs name the evaluation that was broken off. The attackers' garblers
are those of tests/harness/label_attacks.py, in the place of the real program of one side.
"""

import numpy as np
import pytest

from protocols.errors import Refused
from protocols.levels.two_server.signed_labels import signed_labels
from tests.harness import label_attacks as attacks
from tests.harness.guardian_attempts import STUDY, World
from tests.harness.label_attacks import garbling
from tests.harness.refusals import refused_for

SERVERS = {
    "guardian": "protocols.labelling.guardian.guardian_evaluates",
    "coordinator": "protocols.levels.two_server.signed_labels.coordinator_evaluates",
}


class FlippedLabels(attacks.FlippedOutputs):
    """The same in a batch of STUDY: the bits of a label, and all queries that the budgets afford."""

    outputs = (
        (STUDY.classes - 1).bit_length(),
        int(STUDY.budgets.affordable(np.zeros(6, dtype=np.int64), limit=40).min()),
    )


def broken_off(ledger):
    """Who broke off the computation of labels, and with which code, by this log."""
    return [
        (entry.fields["by"], entry.fields["code"])
        for entry in ledger.log.entries()
        if entry.event == "labels_broken_off"
    ]


@pytest.mark.parametrize("garbler", [attacks.OtherGates, FlippedLabels])
@pytest.mark.parametrize("attacker", SERVERS)
def test_a_server_that_garbles_another_circuit_falsifies_no_label_unnoticed(attacker, garbler, monkeypatch):
    made = World()
    evaluates = getattr(garbling(garbler), f"{attacker}_evaluates")
    monkeypatch.setattr(SERVERS[attacker], evaluates)
    with refused_for("labels_differ"):
        made.label()
    own, guardians = broken_off(made.own), broken_off(made.guardians)
    assert [code for _, code in own] == ["labels_differ"]
    assert own[0][0] == "guardian"
    assert len(guardians) == 1
    assert guardians[0][0].startswith("coordinator")
    # Nothing is signed, nobody settles, and what was reserved stands on all sides.
    stored = made.own.stored(0)
    assert not stored.settled
    assert signed_labels(made.own, stored.digest) is None
    assert not made.guardians.stored(0).settled
    assert min(min(each) for each in made.spent()) > 0
    # Nor does a second try, with the real program on both sides.
    monkeypatch.undo()
    with pytest.raises(Refused):
        made.label()
    made.close()
