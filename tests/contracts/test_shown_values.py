"""No repr, and so no log line, traceback or test report, shows votes, records, shares, seeds, keys or tokens."""

import dataclasses
import importlib
import pkgutil
import re

import numpy as np
import pytest

from party.data.records import Records
from party.settings import Invitation
from protocols.enrolment import Enrol
from protocols.messages import VoteReply, VoteRequest
from protocols.queries import QueryBatch

# A field of such a name or type is hidden, unless it is listed below.
NAMES = re.compile(
    r"(^|_)(votes?|counts|histogram|labels?|inputs|records|rows|patients|groups|payload|envelope|shares?|seeds?|secrets?|"
    r"keys?|tokens?|masks?|macs?|noise|coins?|sums?|sealed|content|parameters|model|module|estimator|weights|bias|kernels|"
    r"password|predictions|logits)$"
)
# Digests, numbers used once and certificates: everybody who takes part has them.
IDENTIFIERS = frozenset("study run batch batch_digest session nonce hash certificate".split())
TYPES = re.compile(r"ndarray|\bbytes\b|Tensor|PrivateKey|RandomSource|InferenceSession")

_DIGEST = "a digest or an identifier, which everybody has"
_NAME = "a name or a number of them, which everybody has"
_STUDY = "of the study, which everybody has"
_PUBLIC = "public by its protocol"
SHOWN = {
    "coordinator.sessions._Question.about": _DIGEST,
    "party.teacher_process._Task.digest": _DIGEST,
    "protocols.ranges.Range.secret": "whether values are shown in messages",
    "coordinator.membership.Issued.pem": "a certificate",
    "coordinator.membership.Pending.pem": "a certificate request",
    "coordinator.sessions.Session.refused": _DIGEST,
    "coordinator.sessions.Session.send": "a function",
    "protocols.inference.plan.Plan.vote": "a shape",
    "coordinator.training.Trained.labels": "how many",
    "coordinator.training.Trained.seed": "of the student, published with it",
    "coordinator.students.augmentation.RowChange.noise": "a setting of the student",
    "coordinator.students.networks.Network.logits": "a function",
    "party.demo_data.DemoData.label": _NAME,
    "party.improvement.Improvement.model": _NAME,
    "party.improvement.Improvement.own_records": "how many; of the hospital's own report",
    "party.improvement.Improvement.test_records": "how many; of the hospital's own report",
    "party.lifetime.StudyCost.nano": "what a study may cost, from its public settings",
    "party.teachers.networks.Network.logits": "a function",
    "party.teachers.trees.TreeKind.model": "a class",
    "protocols.aggregation.aggregation.Asked.takes_part": _STUDY,
    "protocols.aggregation.guardian.Submission.request": _DIGEST,
    "protocols.aggregation.guardian.Submission.ids": _PUBLIC,
    "protocols.aggregation.guardian.Submission.members": _NAME,
    "protocols.aggregation.guardian.Submission.seats": _NAME,
    "protocols.aggregation.private_ballot._Computation.request": _DIGEST,
    "protocols.aggregation.private_ballot._Computation.step": _DIGEST,
    "protocols.aggregation.secure_sum.coordinator.Advertised.keys": "public keys, themselves hidden",
    "protocols.aggregation.secure_sum.coordinator.Shared.keys": "public keys, themselves hidden",
    "protocols.aggregation.secure_sum.party._Masking.keys": "public keys, themselves hidden",
    "protocols.aggregation.secure_sum.coordinator.Keys.present": _NAME,
    "protocols.aggregation.secure_sum.coordinator.Masked.present": _NAME,
    "protocols.aggregation.secure_sum.coordinator.Shared.present": _NAME,
    "protocols.aggregation.secure_sum.coordinator.Agreed.present": _NAME,
    "protocols.aggregation.secure_sum.opening.Opened.survivors": _NAME,
    "protocols.aggregation.secure_sum.party._Keys.neighbours": _NAME,
    "protocols.aggregation.secure_sum.party._Keys.present": _NAME,
    "protocols.aggregation.secure_sum.party._Masking.sharers": _NAME,
    "protocols.aggregation.two_server.sketch.Ballots.takes_part": _STUDY,
    "protocols.confidentiality.Confidentiality.sealing_key": "a public key",
    "protocols.confidentiality.Confidentiality.signing_key": "a public key",
    "protocols.coordinator.Labelling.spent": "of budgets, which every receipt tells",
    "protocols.frames.Renew.request": "a certificate request",
    "protocols.frames.Standing.unsettled": _DIGEST,
    "protocols.guardian_line.Carried.pieces": "an iterator, which shows nothing",
    "protocols.inference.architecture.DenseShape.inputs": "how many",
    "protocols.inference.architecture.ReLUShape.inputs": "how many",
    "protocols.mechanisms.mechanism.Lattice.shares": "how many",
    "protocols.mechanisms.mechanism.QueryCost.answer": _STUDY,
    "protocols.mechanisms.mechanism.QueryCost.ask": _STUDY,
    "protocols.mechanisms.mechanism.Sensitivity.rate": _STUDY,
    "protocols.mechanisms.mechanism.Sensitivity.votes": _STUDY,
    "protocols.messages.Outcome.answered": "which queries were answered, which every party is told",
    "protocols.noise.LatticeNoise.draw": "a function",
    "protocols.participation.Participation.phases": _STUDY,
    "protocols.participation.Participation.steps": _STUDY,
    "protocols.queries.QueryBatch.ids": _PUBLIC,
    "protocols.schedule.Batch.active": _STUDY,
    "protocols.schedule.Stop.exhausted": _STUDY,
    "protocols.study.Seat.signing_key": "a public key",
    "protocols.terms.Terms.label": _STUDY,
}


def dataclasses_of(rooms=("party", "coordinator", "protocols")):
    for room in rooms:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, room + "."):
            if "spu_program" in module.name or module.name.endswith("__main__"):
                continue
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and value.__module__ == module.name and dataclasses.is_dataclass(value):
                    yield value


def shown(kind):
    if not kind.__dataclass_params__.repr:
        return
    for each in dataclasses.fields(kind):
        may_be_private = NAMES.search(each.name) or TYPES.search(str(each.type))
        if each.repr and each.name not in IDENTIFIERS and may_be_private:
            yield f"{kind.__module__}.{kind.__qualname__}.{each.name}"


def test_no_field_that_may_be_private_is_shown_but_those_listed_with_a_reason():
    found = {name for kind in dataclasses_of() for name in shown(kind)}
    assert found - set(SHOWN) == set()


def test_what_is_listed_is_there():
    assert set(SHOWN) - {name for kind in dataclasses_of() for name in shown(kind)} == set()


SECRET = 171_717_171
BATCH = QueryBatch(0, np.array([0]), np.full((1, 1), SECRET, np.float32))


@pytest.mark.parametrize(
    "value",
    [
        Records(np.full((1, 1), SECRET, np.float32), np.array([SECRET]), ["p-171717171"], ["g-171717171"]),
        VoteReply(bytes(32), np.array([[SECRET]])),
        VoteRequest(bytes(32), b"", BATCH, (np.array([SECRET]),)),
        Invitation("c", "p", "o", "a:1", "a:2", b"171717171", b"PEM"),
        Enrol("p", b"171717171", b"171717171"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_holds_a_secret_does_not_show_it_alone_in_a_list_or_in_an_error(value):
    for text in (repr(value), str([value]), repr({"x": (value,)}), str(ValueError(value)), f"{value}"):
        assert "171717171" not in text.replace("_", "").replace(".", "")
        assert "1.717" not in text
