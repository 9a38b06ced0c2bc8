"""A whole secure sum in one process, with drop-outs at any step and with messages that are tampered with."""

import hashlib
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import MalformedMessage, Refused
from protocols.levels.secure_sum import ballot as party
from protocols.levels.secure_sum import checking
from protocols.levels.secure_sum.aggregation import open_sum
from protocols.levels.secure_sum.collecting import collect_agreement, collect_keys, collect_masked
from protocols.levels.secure_sum.judging import collect_checks, collect_dealings, settle_disputes
from protocols.levels.secure_sum.terms import Context
from protocols.levels.secure_sum.wire import direction_keys, tagged

STEPS = ("advertise", "share", "check", "accuse", "mask", "agree", "unmask")
# Those that everybody is asked in every sum.
USUAL_STEPS = tuple(step for step in STEPS if step != "accuse")


def make_context(parties, dropouts, colluders, *, cells=5, bits=32, batch=1, run=b"run"):
    names = tuple(f"hospital-{index:03d}" for index in range(parties))
    return Context(
        study=bytes(32), run=run, batch=batch.to_bytes(32, "big"), members=names, dropouts=dropouts,
        colluders=colluders, cells=cells, bits=bits,
    )  # fmt: skip


def identity(name):
    """Signatures that are the same in every run, as ECDSA's are not."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"identity {name}".encode()).digest())


_VERIFIED = {}


def verify(name, statement, signature):
    """Each signature once: all parties of a test live in one process."""
    known = (name, statement, signature)
    if known not in _VERIFIED:
        try:
            identity(name).public_key().verify(signature, statement)
            _VERIFIED[known] = True
        except InvalidSignature:
            _VERIFIED[known] = False
    return _VERIFIED[known]


class KnownAuthenticator:
    """Signatures of `identity`, tags of secrets that everybody knows; counts the signatures that it checks."""

    def __init__(self, name):
        self.name, self.checked = name, []

    def sign(self, statement):
        return identity(self.name).sign(statement)

    def verify(self, member, statement, signature):
        self.checked.append(member)
        return verify(member, statement, signature)

    def tag(self, receiver, statement):
        return tagged(self._keys(receiver)[0], statement)

    def holds(self, sender, statement, tag):
        return sender != self.name and tagged(self._keys(sender)[1], statement) == tag

    def _keys(self, other):
        secret = hashlib.sha256(repr(sorted([self.name, other])).encode()).digest()
        return direction_keys(secret, bytes(32), own=self.name, other=other)


@dataclass
class Member:
    """One party: its identity, its secret of the batch, and the notes of its ledger."""

    context: Context
    index: int
    values: np.ndarray
    seed: int = 0
    notes: dict = field(default_factory=dict)

    def __post_init__(self):
        self.authenticator = KnownAuthenticator(self.context.members[self.index])
        self.batch_secret = hashlib.sha256(f"{self.seed} {self.index}".encode()).digest()

    @property
    def own(self):
        return self.batch_secret, self.context, self.index

    def answer(self, step, request):
        context, index, by = self.context, self.index, {"authenticator": self.authenticator}
        if step == "advertise":
            return party.advertise(*self.own, **by)
        if step == "share":
            return party.share(*self.own, request, **by)
        if step == "check":
            return checking.check_shares(*self.own, request, **by)
        if step == "accuse":
            return checking.accuse(*self.own, request, **by)
        if step == "mask":
            noted = self.notes.setdefault("masking", party.masking_note(context, index, request))
            return party.mask(*self.own, request, self.values, noted=noted, **by)
        masked = self.notes["masking"]
        noted = self.notes.setdefault("survivors", party.survivors_note(context, index, request[:2]))
        if step == "agree":
            return party.agree(context, index, request, masked=masked, noted=noted, **by)
        return party.unmask(*self.own, request, masked=masked, noted=noted, **by)


class Sum:
    """Runs the steps. `absent`: by step, who does not answer from then on; `tamper`: (step, index, reply) -> reply."""

    def __init__(self, context, values, *, seed=0, absent=None, tamper=None, relay=None):
        self.context = context
        self.members = [Member(context, index, values[index], seed) for index in range(context.parties)]
        self.absent, self.tamper, self.relay = absent or {}, tamper, relay
        self.errors, self.replies = {}, {}

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
                reply = self.members[index].answer(step, arrays)
            except (MalformedMessage, Refused) as error:
                self.errors[step, index] = error
                continue
            replies[index] = self.tamper(step, index, reply) if self.tamper else reply
        self.replies[step] = replies
        return replies

    def run(self):
        everyone = np.ones(self.context.parties, dtype=bool)
        self.advertised = collect_keys(self.context, self.ask("advertise", everyone, lambda index: ()), verify=verify)
        self.keys = self.advertised.keys
        self.dealt = collect_dealings(self.keys, self.ask("share", self.keys.present, self.advertised.request))
        replies = self.ask("check", self.dealt.present, self.dealt.request)
        self.checked = collect_checks(self.dealt, replies, verify=verify)
        accusers = np.isin(np.arange(self.context.parties), list(self.checked.disputes))
        self.shared = settle_disputes(self.checked, self.ask("accuse", accusers, self.checked.request))
        replies = self.ask("mask", self.shared.present, self.shared.request)
        self.masked = collect_masked(self.shared, replies, verify=verify)
        self.agreed = collect_agreement(
            self.masked, self.ask("agree", self.masked.present, lambda index: self.masked.request)
        )
        self.opened = open_sum(self.agreed, self.ask("unmask", self.agreed.present, self.agreed.request))
        return self.opened
