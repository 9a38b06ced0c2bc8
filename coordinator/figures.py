"""The figures of a status as metrics for a monitoring system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # the values of a JSON object

from runtime.loopback import Family


def families(status: Mapping[str, Any]) -> list[Family]:
    """The figures of coordinator.status.read_status, as metrics."""
    studies = status["studies"]
    seats = [({"study": study["study"], "seat": seat["seat"]}, seat) for study in studies for seat in study["seats"]]
    requests, days = status["pending_requests"], status["parties"]
    made = [
        Family("conclave_parties_connected", "Parties with an open stream.", [({}, len(status["connected"]))]),
        Family("conclave_requests_pending", "Certificate requests that wait for approval.", [({}, len(requests))]),
        Family(
            "conclave_certificate_days_left",
            "Days until a party's newest certificate expires.",
            [({"party": each["party"]}, each["days_left"]) for each in days],
        ),
    ]
    for key, text in (("batches", "Rounds of votes."), ("asked", "Queries asked."), ("answered", "Queries answered.")):
        known = [({"study": each["study"]}, each[key]) for each in studies if each[key] is not None]
        made.append(Family(f"conclave_study_{key}", text, known))
    for key, text in (
        ("connected", "Whether the seat's party has an open stream."),
        ("answers_left", "Answers that the seat's budget still affords, in the worst case."),
        ("epsilon_used", "The ledger's epsilon at the seat's own order: for monitoring, not a guarantee."),
        ("epsilon_guaranteed", "The epsilon that the seat's cap guarantees."),
        ("left_out", "Batches from which the seat was left out."),
    ):
        made.append(Family(f"conclave_seat_{key}", text, [(labels, float(seat[key])) for labels, seat in seats]))
    return made
