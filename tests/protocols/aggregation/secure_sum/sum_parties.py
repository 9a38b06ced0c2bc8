"""A whole secure sum in one process, with drop-outs at any step and with messages that are tampered with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.aggregation.secure_sum import party
from protocols.aggregation.secure_sum.context import Context
from protocols.aggregation.secure_sum.coordinator import (
    collect_keys,
    collect_masked,
    collect_shares,
    collect_signatures,
)
from protocols.aggregation.secure_sum.opening import open_sum
from protocols.errors import MalformedMessage, Refused

STEPS = ("advertise", "share", "mask", "agree", "unmask")


def make_context(parties, dropouts, colluders, *, cells=5, bits=32, batch=1, run=b"run"):
    names = tuple(f"hospital-{index:03d}" for index in range(parties))
    return Context(
        study=bytes(32), run=run, batch=batch.to_bytes(32, "big"), members=names, dropouts=dropouts,
        colluders=colluders, cells=cells, bits=bits,
    )  # fmt: skip


@dataclass
class Member:
    """One party: its identity, its secret of the batch, and the notes of its ledger."""

    context: Context
    index: int
    values: np.ndarray
    seed: int = 0
    notes: dict = field(default_factory=dict)

    def __post_init__(self):
        identity = hashlib.sha256(f"identity {self.context.members[self.index]}".encode()).digest()
        self.key = Ed25519PrivateKey.from_private_bytes(identity)
        self.batch_secret = hashlib.sha256(f"{self.seed} {self.index}".encode()).digest()

    @property
    def own(self):
        return self.batch_secret, self.context, self.index

    def answer(self, step, request, verify):
        context, index = self.context, self.index
        if step == "advertise":
            return party.advertise(*self.own, sign=self.key.sign)
        if step == "share":
            return party.share(*self.own, request, verify=verify)
        if step == "mask":
            noted = self.notes.setdefault("masking", party.masking_note(context, index, request))
            return party.mask(*self.own, request, self.values, noted=noted)
        masked = self.notes["masking"]
        noted = self.notes.setdefault("survivors", party.survivors_note(context, index, request[:2]))
        if step == "agree":
            return party.agree(context, index, request, masked=masked, noted=noted, sign=self.key.sign)
        return party.unmask(*self.own, request, masked=masked, noted=noted, verify=verify)


class Sum:
    """Runs the steps. `absent`: by step, who does not answer from then on; `tamper`: (step, index, reply) -> reply."""

    def __init__(self, context, values, *, seed=0, absent=None, tamper=None, relay=None):
        self.context = context
        self.members = [Member(context, index, values[index], seed) for index in range(context.parties)]
        self.absent, self.tamper, self.relay = absent or {}, tamper, relay
        self.errors, self.replies = {}, {}
        self._verified = {}

    def verify(self, name, message, signature):
        """Each signature once: all parties of a test live in one process."""
        known = (name, message, signature)
        if known not in self._verified:
            key = self.members[self.context.members.index(name)].key.public_key()
            try:
                key.verify(signature, message)
                self._verified[known] = True
            except InvalidSignature:
                self._verified[known] = False
        return self._verified[known]

    def ask(self, step, asked, request):
        gone = {index for at in STEPS[: STEPS.index(step) + 1] for index in self.absent.get(at, ())}
        replies = {}
        for index in np.flatnonzero(asked).tolist():
            if index in gone:
                continue
            arrays = request(index)
            if self.relay:
                arrays = self.relay(step, index, arrays)
            try:
                reply = self.members[index].answer(step, arrays, self.verify)
            except (MalformedMessage, Refused) as error:
                self.errors[step, index] = error
                continue
            replies[index] = self.tamper(step, index, reply) if self.tamper else reply
        self.replies[step] = replies
        return replies

    def run(self):
        everyone = np.ones(self.context.parties, dtype=bool)
        self.keys = collect_keys(self.context, self.ask("advertise", everyone, lambda index: ()), verify=self.verify)
        self.shared = collect_shares(self.keys, self.ask("share", self.keys.present, self.keys.request))
        self.masked = collect_masked(self.shared, self.ask("mask", self.shared.present, self.shared.request))
        self.agreed = collect_signatures(
            self.masked, self.ask("agree", self.masked.present, lambda index: self.masked.request), verify=self.verify
        )
        self.opened = open_sum(self.agreed, self.ask("unmask", self.agreed.present, self.agreed.request))
        return self.opened
