"""The state that a node's page shows, of a real home."""

import pytest

from party.home import PartyHome
from party.live import LAST_AUDIT, Recent, last_audit, node_page, node_state, remember_audit, top_line
from protocols.crypto.identity import new_key, to_pem
from tests.harness.answering import SEAT, opened, request
from tests.harness.certifying import Certifying
from tests.harness.homes import write_invitation

# Teachers run in a process: one for nearly every test.
pytestmark = pytest.mark.usefixtures("forked")


def test_the_page_of_a_home_says_what_was_asked_refused_reserved_and_approved(place):
    home, _, study, policy = place
    recent = Recent()
    recent("connected", {})
    certifying = Certifying()
    certifying.make_authority()
    certifying.address, certifying.enrol_port = "127.0.0.1:1", 2
    write_invitation(home.invitation_file, certifying, party=SEAT)
    certificate = certifying.certify(new_key(), SEAT, days=9)
    home.certificate.write_bytes(to_pem(certificate))
    with opened(place) as answering:

        def state():
            return node_state(home, home.invitation(), policy, answering.seats, recent)

        before = state()
        (seat,) = answering.seats()
        seat.party.handle(request(study, 0))
        seat.party.handle(request(study, 0, start=7))  # another batch under the same number
        after = state()
    (unused,), (used,) = before.seats, after.seats
    assert unused.left == unused.total == used.total == study.query_limit
    assert used.left == study.query_limit - len(request(study, 0).batch.ids)
    assert (unused.reserved, used.used) == (0.0, 0.0)
    assert 0 < used.reserved <= used.cap == pytest.approx(study.budgets.epsilon_guaranteed[study.seats[SEAT]])
    assert [(each.event, each.code) for each in after.happened] == [("refused", "batch_reused"), ("reserved", "")]
    assert after.happened[1].queries == len(request(study, 0).batch.ids)
    assert list(after.approved_ns) == [study.digest.hex()]
    ends = certificate.not_valid_after_utc
    assert after.certificate_days == pytest.approx((ends - after.now).total_seconds() / 86400)
    assert top_line(after) == f"Connected; {study.name}: {used.left} of {used.total} answers left; nothing needs you."
    assert "refused (batch_reused): " in node_page(after)


def test_what_an_audit_found_is_remembered_and_a_file_that_was_edited_is_as_none(place):
    home, _, _, _ = place
    assert last_audit(home) is None
    remember_audit(home, holds=True, seats=1)
    found = last_audit(home)
    assert (found.holds, found.seats) == (True, 1)
    (home.path / LAST_AUDIT).write_text('{"time_s": "now", "holds": 1}')
    assert last_audit(home) is None
    remember_audit(PartyHome(home.path / "records.csv" / "is no folder"), holds=True, seats=1)  # as on a read-only copy
