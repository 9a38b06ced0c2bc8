"""No repr, and so no log line, traceback or test report, shows votes, records, shares, seeds, keys or tokens."""

import dataclasses
import importlib
import pkgutil
import re

import numpy as np
import pytest

from party.data.records import Records
from party.settings import Invitation
from protocols.study.queries import QueryBatch
from protocols.wire.enrolment import Enrol
from protocols.wire.messages import VoteReply, VoteRequest

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
_REPORT = "how many; of the hospital's own report"
# A number in, a number out: these see budgets and settings of studies alone.
ACCOUNTING = (
    "protocols.bounds.",
    "protocols.budgets.filter.",
    "protocols.budgets.planned.",
    "protocols.study.plan.",
    "protocols.study.teacher_study.",
    "protocols.budgets.privacy_curve.",
)
SHOWN = {
    "protocols.levels.two_server.agreement._Compared.context": _DIGEST,
    "protocols.levels.two_server.batch_notes.BatchNotes.request": _DIGEST,
    "protocols.levels.two_server.noisy_argmax.Evaluated.context": _DIGEST,
    "coordinator.connection.sessions.Awaited.about": _DIGEST,
    "party.voting.teacher_process._Task.digest": _DIGEST,
    "protocols.claims.protection.Protection.votes": _STUDY,
    "coordinator.release.statement._Kind.noise": "a function",
    "coordinator.release.statement._Kind.records": "a function",
    "protocols.claims.protection.LevelWords.noise": "words",
    "protocols.claims.protection.LevelWords.who_sees_votes": "words",
    "protocols.claims.protection.VoteWords.guardian_sees_label": "words",
    "protocols.claims.protection.VoteWords.several_records": "words",
    "protocols.claims.protection.Protection.secret": _STUDY,
    "runtime.loopback.Family.rows": "figures that the metrics port serves",
    "protocols.ranges.Range.secret": "whether values are shown in messages",
    "coordinator.store.members.Issued.pem": "a certificate",
    "coordinator.store.members.Pending.pem": "a certificate request",
    "coordinator.connection.sessions.Session.refused": _DIGEST,
    "coordinator.connection.sessions.Session.seats": _DIGEST,
    "coordinator.connection.sessions.Connected.seats": _DIGEST,
    "coordinator.connection.sessions.Session.send": "a function",
    "protocols.levels.hidden_queries.inference.plan.InferencePlan.vote": "a shape",
    "runtime.page.Bar.share": "what a page shows",
    "coordinator.labelling.soft_labels.Turnout.records": "how many, from public numbers",
    "coordinator.labelling.soft_labels.NoisySums.records": "how many, from public numbers",
    "coordinator.students.choice.Trained.labels": "how many",
    "coordinator.encoders.standard.Origin.weights": "a sentence on where public weights come from",
    "coordinator.queries.choice.QueryChoice.seed": "of public queries, an argument of their command",
    "coordinator.students.choice.Trained.seed": "of the student, published with it",
    "coordinator.labelling.training._How.seed": "of the student, published with it",
    "coordinator.students.torch_student.RowChange.noise": "a setting of the student",
    "coordinator.students.torch_student.StudentNetwork.logits": "a function",
    "coordinator.students.label_spreading._Graph.rows": "of the public pool",
    "coordinator.students.propagation.PropagationKind.rows": "a function",
    "party.demo.demo_data.DemoData.label": _NAME,
    "party.asking.report.Improvement.model": _NAME,
    "party.asking.report.Improvement.own_records": _REPORT,
    "party.asking.report.Improvement.test_records": _REPORT,
    "party.data.dicom.DicomFolder.labels": "a path",
    "party.data.mapping.DataMapping.equal_rows": "a rule",
    "party.voting.suitability.Alike.rows": _REPORT,
    "party.data.quality.Proposal.rows": _REPORT,
    "party.data.quality.Quality.rows": _REPORT,
    "party.teachers.scores.TeacherScore.records": _REPORT,
    "party.voting.suitability.Suitability.patients": _REPORT,
    "party.voting.suitability.Suitability.records": _REPORT,
    "party.lifetime.StudyCost.nano": "what a study may cost, from its public settings",
    "party.teachers.torch_teacher.TeacherNetwork.logits": "a function",
    "party.teachers.trees.TreeKind.model": "a class",
    "protocols.levels.level.ReservedBatch.takes_part": _STUDY,
    "protocols.levels.two_server.conversation.Submission.request": _DIGEST,
    "protocols.levels.two_server.conversation.Submission.ids": _PUBLIC,
    "protocols.levels.two_server.conversation.Submission.members": _NAME,
    "protocols.levels.two_server.conversation.Submission.seats": _NAME,
    "protocols.levels.hidden_queries.ballot._Computation.request": _DIGEST,
    "protocols.levels.hidden_queries.sealing.Computation.request": _DIGEST,
    "protocols.study.levels.HiddenQueries.querier_key": "public",
    "protocols.levels.hidden_queries.ballot._Computation.step": _DIGEST,
    "protocols.levels.secure_sum.collecting.Advertised.keys": "public keys, themselves hidden",
    "protocols.levels.secure_sum.collecting.Shared.keys": "public keys, themselves hidden",
    "protocols.levels.secure_sum.ballot._Masking.keys": "public keys, themselves hidden",
    "protocols.levels.secure_sum.collecting.Keys.present": _NAME,
    "protocols.levels.secure_sum.collecting.Masked.present": _NAME,
    "protocols.levels.secure_sum.collecting.Shared.present": _NAME,
    "protocols.levels.secure_sum.collecting.Agreed.present": _NAME,
    "protocols.levels.secure_sum.aggregation._Opened.survivors": _NAME,
    "protocols.levels.secure_sum.dealing.Dealing.blinding": "a public point",
    "protocols.levels.secure_sum.judging._Checked.present": _NAME,
    "protocols.levels.secure_sum.judging._Dealt.keys": "public keys, themselves hidden",
    "protocols.levels.secure_sum.judging._Dealt.present": _NAME,
    "protocols.levels.secure_sum.ballot._Masking.sharers": _NAME,
    "protocols.levels.two_server.sketch.Ballots.takes_part": _STUDY,
    "protocols.sums.blocks.Block.share": _STUDY,
    "protocols.sums.blocks.Chosen.share": _STUDY,
    "protocols.sums.blocks.Constant.share": _STUDY,
    "protocols.sums.blocks.Kernel.share": _STUDY,
    "protocols.sums.blocks.Linear.share": _STUDY,
    "protocols.sums.blocks.Nearest.share": _STUDY,
    "protocols.sums.blocks.Signs.share": _STUDY,
    "protocols.sums.bounded.Bounded.rows": _STUDY,
    "protocols.sums.bounded.CountedCells.rows": _STUDY,
    "protocols.sums.bounded.Proven.rows": _STUDY,
    "protocols.sums.contributions.Claim.votes": _STUDY,
    "protocols.sums.fit.PublicMoment.records": _PUBLIC,
    "protocols.sums.fit._Found.coefficients": "of released sums and the public pool",
    "protocols.sums.fit._Found.weights": "of released sums and the public pool",
    "protocols.sums.fit._Prior.base": "of released sums and the public pool",
    "protocols.sums.fit._Prior.fixed": "of released sums and the public pool",
    "protocols.sums.fit._Prior.of": "of released sums and the public pool",
    "protocols.sums.fit._Problem.z": "of released sums and the public pool",
    "protocols.study.votes.UnitSums.votes": "how many",
    "protocols.study.study.Study.votes": _STUDY,
    "protocols.study.deployed.DeployedStudy.votes": _STUDY,
    "protocols.levels.two_server.aggregation._Submitted.seats": _NAME,
    "protocols.levels.two_server.aggregation._Submitted.digest": _DIGEST,
    "protocols.study.levels.GuardedLevel.sealing_key": "a public key",
    "protocols.study.levels.GuardedLevel.signing_key": "a public key",
    "protocols.study.levels.HiddenQueries.sealing_key": "a public key",
    "protocols.study.levels.HiddenQueries.seat_keys": "public keys",
    "protocols.study.levels.HiddenQueries.signing_key": "a public key",
    "protocols.study.levels.SecureSum.seat_keys": "public keys",
    "protocols.study.levels.GuardedLevel.seat_keys": "public keys",
    "protocols.study.levels.TwoServer.seat_keys": "public keys",
    "protocols.levels.two_server.statement.Statement.fates": "whose votes counted, which everybody is told",
    "protocols.levels.two_server.statement.Told.fates": "whose votes counted, which everybody is told",
    "protocols.study.levels.TwoServer.sealing_key": "a public key",
    "protocols.study.levels.TwoServer.signing_key": "a public key",
    "protocols.labelling.coordinator.Labelling.spent": "of budgets, which every receipt tells",
    "protocols.wire.frames.Renew.request": "a certificate request",
    "protocols.wire.frames.SeatHeads.untold": _DIGEST,
    "protocols.wire.frames.Hello.withdrawn": _DIGEST,
    "protocols.wire.guardian.Carried.pieces": "an iterator, which shows nothing",
    "protocols.levels.hidden_queries.inference.architecture.DenseShape.inputs": "how many",
    "protocols.levels.hidden_queries.inference.architecture.ReLUShape.inputs": "how many",
    "protocols.mechanisms.mechanism.Lattice.shares": "how many",
    "protocols.mechanisms.mechanism.QueryCost.answer": _STUDY,
    "protocols.mechanisms.mechanism.QueryCost.ask": _STUDY,
    "protocols.mechanisms.mechanism.Sensitivity.rate": _STUDY,
    "protocols.mechanisms.mechanism.Sensitivity.votes": _STUDY,
    "protocols.wire.messages.Outcome.answered": "which queries were answered, which every party is told",
    "protocols.noise.LatticeNoise.draw": "a function",
    "protocols.budgets.individualization.WeightRule.weigh": "a function",
    "protocols.budgets.participation.Participation.phases": _STUDY,
    "protocols.budgets.participation.Participation.steps": _STUDY,
    "protocols.study.queries.QueryBatch.ids": _PUBLIC,
    "protocols.labelling.schedule.Batch.active": _STUDY,
    "protocols.labelling.schedule.Stop.exhausted": _STUDY,
    "protocols.study.terms.Terms.label": _STUDY,
    "coordinator.students.choice.ToLearn.labels": _NAME,
    "protocols.labelling.coordinator.SecondSum.counted": "who was in a sum, which the release says",
    "protocols.release.counts.Count.label": _STUDY,
    "protocols.release.counts.Count.patients": "a noisy count, which is released",
    "protocols.study.count_cells.CountCells.rows": _STUDY,
    "protocols.sums.blocks.Cells.share": _STUDY,
    "protocols.sums.blocks.Ranges.share": _STUDY,
    "protocols.sums.fit._Found.variances": "of a prior, before anything was seen",
    "protocols.sums.judged.Judged.noise": _STUDY,
    "protocols.sums.judged.PoolBins.ahead": "of the public pool",
    "protocols.sums.judged.PoolBins.means": "of the public pool",
    "protocols.sums.judging.Evaluation.key": "drawn in public, and part of the study's terms",
    "protocols.sums.judging.Evaluation.rows": _STUDY,
    "protocols.sums.judging.Evaluation.share": _STUDY,
}


def dataclasses_of(rooms=("party", "coordinator", "guardian", "runtime", "protocols")):
    for room in rooms:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, room + "."):
            if module.name.endswith("__main__"):
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
    found = {name for kind in dataclasses_of() for name in shown(kind) if not name.startswith(ACCOUNTING)}
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
