"""guardian serve in a thread, over its real port, where records vote: one sum, opened once and charged once."""

import numpy as np
import pytest

from guardian.serving import guardian_status
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.aggregation import opened_signature
from protocols.levels.two_server.statement import check_opened
from tests.harness.guardians import TwoOrganisations
from tests.system.guardian.test_guardian_serving import label_through_breaks, serving


@pytest.fixture
def world(tmp_path):
    made = TwoOrganisations(tmp_path, records=True)
    yield made
    made.close()


def check_opened_and_charged_once(world, labelling):
    study = world.study
    noise = labelling.cells - np.sum(world.sums, axis=0)
    assert 0 < np.abs(noise).max() < 7 * np.sqrt(2) * study.mechanism.sigma * study.units
    digest = world.ledger.stored(0).digest
    key = bytes.fromhex(study.confidentiality.signing_key)
    signature = opened_signature(world.ledger, digest)
    check_opened(signature, labelling.cells, study=study.digest, request=digest, key=key)
    with Ledger(world.guardians_ledger()) as guardians:
        at_guardian = [guardians.balance(seat.party).spent for seat in study.roster]
        assert guardians.unsettled() == []
    at_parties = [world.ledgers[seat.party].balance(seat.party).spent for seat in study.roster]
    assert labelling.spent.tolist() == at_guardian == at_parties == study.budgets.amount(1, 1).tolist()


def test_the_sum_is_opened_over_the_line_and_every_ledger_says_the_same(world):
    with serving(world) as log:
        labelling = world.label()
        (study,) = guardian_status(world.guardian)["studies"]
        events = [line["event"] for line in log()]
    assert labelling.stop.reason == "pool_exhausted"
    assert labelling.refusals == {}
    check_opened_and_charged_once(world, labelling)
    assert [study[key] for key in ("batches", "asked", "answered", "unsettled")] == [1, 16, 16, 0]
    assert events.count("conversation_began") == events.count("conversation_ended") == 1


def test_every_message_of_a_conversation_about_sums_may_be_its_last(world):
    """The coordinator breaks off before each message in turn, and goes on in a new conversation."""
    labelling, broken = label_through_breaks(world, every=1)
    assert broken == 8
    check_opened_and_charged_once(world, labelling)
