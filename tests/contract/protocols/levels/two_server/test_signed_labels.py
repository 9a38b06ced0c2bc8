"""The guardian's signature of a batch's labels, which the coordinator checks at once and keeps; masked where hidden."""

import numpy as np
import pytest

from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.signed_labels import SignedLabels, labels_statement, signed_labels
from protocols.votes import ABSTAIN
from tests.harness.guardian_attempts import World
from tests.harness.levels import GuardianHere
from tests.harness.private_models import PrivateParties, asking, hidden_study, linear_models
from tests.harness.refusals import refused_for
from tests.harness.seeded import seeded_source


class Asked:
    """A study of hidden queries in one process, as World is one of public ones."""

    def __init__(self):
        self.study = hidden_study()
        self.own, self.guardians = Ledger(":memory:"), Ledger(":memory:")
        self.parties = PrivateParties(self.study, linear_models(self.study))

    def label(self):
        here = GuardianHere(self.study, self.guardians, seeded_source(5))
        coordinator, positions = asking(self.study, here, self.own, self.parties.exchange())
        return coordinator.label(positions)

    def close(self):
        self.own.close()
        self.guardians.close()


def of_other_labels(study, request, queries, labels):
    """What a guardian signs that changes the label of the first query."""
    return labels_statement(study, request, queries, np.concatenate([labels[:1] + 1, labels[1:]]))


@pytest.mark.parametrize("world", [World, Asked])
def test_labels_that_the_guardian_did_not_sign_are_refused_before_anybody_sees_them(world, monkeypatch):
    """For hidden queries the asker itself checks, with the mask that it alone knows."""
    made = world()
    monkeypatch.setattr("protocols.labelling.guardian.labels_statement", of_other_labels)
    with refused_for("labels_differ"):
        made.label()
    (entry,) = [each for each in made.own.log.entries() if each.event == "labels_broken_off"]
    assert (entry.fields["by"], entry.fields["code"]) == ("guardian", "labels_differ")
    stored = made.own.stored(0)
    assert not stored.settled
    assert signed_labels(made.own, stored.digest) is None
    # Honest again, the same labels are opened and signed: nothing is lost.
    monkeypatch.undo()
    assert (made.label().labels >= 0).any()
    made.close()


@pytest.mark.parametrize("world", [World, Asked])
def test_what_was_signed_is_kept_and_is_of_this_study_request_queries_and_labels(world):
    made = world()
    labels = made.label().labels
    number = 0
    while (stored := made.own.stored(number)) is not None:
        queries = made.own.queries(number)
        signed = signed_labels(made.own, stored.digest)
        signed.check(made.study, stored.digest, queries)
        released = labels[queries]
        # Who refused is public; the labels are the guardian's too, unless the querier hid them.
        assert ((signed.labels < 0) == (released == ABSTAIN)).all()
        if world is World:
            assert signed.labels.tolist() == released.tolist()
        for request, asked, shown in (
            (bytes(32), queries, signed.labels),
            (stored.digest, [each + 1 for each in queries], signed.labels),
            (stored.digest, queries, signed.labels[::-1].copy() + 1),
        ):
            with refused_for("labels_differ"):
                SignedLabels(shown, signed.signature).check(made.study, request, asked)
        number += 1
    assert number > 0
    made.close()


def test_a_hidden_label_is_masked_for_the_guardian():
    made = Asked()
    labels = made.label().labels
    masked = [
        signed_labels(made.own, stored.digest).labels.tolist() != labels[made.own.queries(number)].tolist()
        for number in range(3)
        if (stored := made.own.stored(number)) is not None
    ]
    # Three fair bits a query: that no label of a batch is changed has a chance of 2^-8 or less.
    assert any(masked)
    made.close()
