"""A head of the coordinator's log that a hospital claims: believed with the coordinator's signature of it alone."""

import datetime

import pytest

from coordinator.connection.admission import FAULTS, Admission
from coordinator.connection.open_study import OpenStudy, check_all, check_heads
from protocols.crypto.identity import Identity, new_authority, new_key, sign
from protocols.ledger.audit_log import EMPTY, Head
from protocols.ledger.ledger import Ledger
from protocols.wire.frames import SeatHeads, head_statement
from tests.harness.refusals import refused_for
from tests.harness.studies import deployed_study

STUDY = deployed_study(2)
FIRST, SECOND = (seat.party for seat in STUDY.roster)
KEY = new_key()
OWN = Identity(
    "centre", "coordinator", new_authority(KEY, name="test", now=datetime.datetime.now(datetime.UTC), days=9)
)
NEVER = Head(7, b"h" * 32)


@pytest.fixture
def opened():
    with Ledger(":memory:") as ledger:
        ledger.log.append("opened")
        yield OpenStudy(STUDY, ledger, None)


def claim(head, proof, seat=FIRST):
    return SeatHeads(STUDY.digest, seat, EMPTY, head, (), proof)


def proof_of(head, *, key=KEY, study=STUDY.digest):
    return sign(key, head_statement(study, head))


PROOFS = {
    "none": b"",
    "bytes": b"no signature",
    "own key": proof_of(NEVER, key=new_key()),
    "another head": proof_of(Head(6, b"h" * 32)),
    "another study": proof_of(NEVER, study=b"s" * 32),
}


@pytest.mark.parametrize("head", [NEVER, Head(1, b"h" * 32), Head(0, b"h" * 32)], ids=["later", "other", "empty"])
@pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)
def test_a_head_that_was_made_up_costs_its_own_seat_and_stops_no_study(opened, head, proof):
    if head != NEVER and proof == PROOFS["another head"]:
        proof = proof_of(NEVER)
    with refused_for("unproven_head", FIRST, head.count):
        check_heads(opened, FIRST, claim(head, proof), own=OWN)
    assert opened.fault is None


def test_a_head_that_the_coordinator_signed_and_lacks_stops_the_study(opened):
    with refused_for("coordinator_rolled_back"):
        check_heads(opened, FIRST, claim(NEVER, proof_of(NEVER)), own=OWN)
    assert opened.fault.code == "coordinator_rolled_back"


def test_a_head_that_the_log_has_needs_no_proof(opened):
    check_heads(opened, FIRST, claim(opened.ledger.log.head(), b""), own=OWN)
    check_heads(opened, FIRST, claim(EMPTY, b""), own=OWN)


def test_the_other_seats_of_a_hello_are_served_and_the_log_names_the_party_once_a_code(opened):
    studies = {STUDY.digest: opened}
    # No check of names: a Hello may list any seats.
    seats = [claim(NEVER, b""), claim(NEVER, b"", SECOND), *(claim(EMPTY, b"", f"seat-{each}") for each in range(9))]
    other = SeatHeads(b"o" * 32, FIRST, EMPTY, NEVER, (), b"")
    served, refused = check_all(studies, FIRST, [*seats, other], own=OWN)
    assert served == [other]  # of a study that is not open here: nothing is asked of it
    assert len(refused) == len(seats)
    events = []
    admission = Admission(on_event=lambda event, fields: events.append((event, fields["party"], fields["code"])))
    admission.seats_refused(FIRST, refused)
    assert sorted(events) == [("seat_refused", FIRST, "unproven_head"), ("seat_refused", FIRST, "wrong_seat")]
    assert sum(admission.fault(FIRST) for _ in range(FAULTS)) == FAULTS - 1
