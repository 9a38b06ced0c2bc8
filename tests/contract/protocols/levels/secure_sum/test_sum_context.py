"""What a sum is bound to, and what is refused before anything is sent."""

import dataclasses

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.levels.secure_sum import ballot as party
from tests.harness.refusals import refuses
from tests.harness.sum_parties import Member, Sum, make_context

CONTEXT = make_context(6, 1, 1)

CHANGES = {
    "study": bytes([1]) * 32, "run": b"other", "batch": bytes(32), "members": ("a", "b", "c", "d", "e", "f"),
    "dropouts": 0, "colluders": 0, "cells": 6, "bits": 64,
}  # fmt: skip


def test_the_digest_depends_on_every_field() -> None:
    assert set(CHANGES) == {field.name for field in dataclasses.fields(CONTEXT)}
    digests = {dataclasses.replace(CONTEXT, **{name: value}).digest for name, value in CHANGES.items()}
    assert len(digests | {CONTEXT.digest}) == len(CHANGES) + 1


def test_names_that_run_together_are_told_apart() -> None:
    left, right = (
        dataclasses.replace(CONTEXT, members=(*CONTEXT.members[:4], *names)) for names in (("ab", "c"), ("a", "bc"))
    )
    assert left.digest != right.digest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("study", bytes(31)), ("batch", b""), ("run", bytes(65)), ("members", ("a", "b", "c", "d", "e", "a")),
        ("members", ("a",)), ("cells", 0), ("cells", 2**26 + 1), ("bits", 16), ("dropouts", 3), ("colluders", 5),
    ],
)  # fmt: skip
def test_a_context_that_cannot_be_is_refused_with_its_values(name, value) -> None:
    with refuses(InvalidInput, "allowed"):
        dataclasses.replace(CONTEXT, **{name: value})


def test_values_of_another_shape_are_refused() -> None:
    running = Sum(CONTEXT, np.zeros((6, 5), dtype=np.int64))
    running.run()
    request = running.shared.request(0)
    noted = party.masking_note(CONTEXT, 0, request)
    by = running.members[0].authenticator
    with refuses(InvalidInput, "(4,)", "(5,)"):
        party.mask(*running.members[0].own, request, np.zeros(4, dtype=np.int64), noted=noted, authenticator=by)


@pytest.mark.parametrize("length", [0, 73])
def test_a_signature_that_does_not_fit_the_message_is_refused(length, monkeypatch) -> None:
    member = Member(CONTEXT, 0, np.zeros(5, dtype=np.int64))
    monkeypatch.setattr(member.authenticator, "sign", lambda message: bytes(length))
    with refuses(InvalidInput, length, 1, 72):
        party.advertise(*member.own, authenticator=member.authenticator)
