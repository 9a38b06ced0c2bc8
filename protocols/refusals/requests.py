"""What the codes of a batch mean: what a server or a node refuses, and a seat's state in a log."""

from __future__ import annotations

from typing import Final

from protocols.refusals.code import Code
from protocols.refusals.meaning import ANSWERED, ASKER, BOTH, COMMAND, GUARDIAN, NODE, OPERATOR, RELEASE, Cost, Meaning

REQUESTS: Final[dict[str, dict[Code, Meaning]]] = {
    "Coordinator and guardian": {
        Code.GUARDIAN_REFUSES: Meaning(
            "the other server gave one of the codes here, or a node's",
            "its operator's log says more",
            OPERATOR | ASKER,
            Cost.STANDS,
        ),
        Code.OTHER_SUBMISSION: Meaning(
            "a batch was submitted to the guardian before, with other shares",
            "the coordinator's ledger is not the newest: use that",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
        Code.OTHER_COIN: Meaning(
            "a batch's votes were to be checked under a second coin, which would reveal them",
            "keep the log: with honest servers this does not happen",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
        Code.OTHER_CHECK: Meaning(
            "the check of a batch's votes, or of the servers' inputs, was repeated with other voters or messages: it "
            "would reveal votes",
            "keep the log: with honest servers and their newest ledgers this does not happen",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
        Code.OTHER_SUMS: Meaning(
            "the noisy sums of a batch were to be opened a second time, with other shares, or are not those that the "
            "guardian signed",
            "keep the log: with honest servers and their newest ledgers this does not happen",
            OPERATOR | GUARDIAN | COMMAND,
            Cost.STANDS,
        ),
        Code.FALSE_INPUTS: Meaning(
            "the other server entered something else into the computation of labels than its share of the votes and "
            "its noise; no label of the batch is released",
            "keep the log: with honest servers this does not happen, so ask what the other server runs",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
        Code.LABELS_DIFFER: Meaning(
            "the two servers' computations of a batch's labels do not agree, or one of them opens them otherwise than "
            "before; no label of the batch is released",
            "keep both logs: with honest servers and their newest ledgers this does not happen",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
        Code.TOO_MANY_OPENED: Meaning(
            "three batches of the study were opened by both servers and never settled; no other one is opened, since "
            "the other server may have learned a bit of each",
            "finish those batches with `resume`, or with `ask`; if they were given up, nothing: no more batch is asked "
            "in this study. Keep both logs (`labels_broken_off`)",
            OPERATOR | GUARDIAN | ASKER,
        ),
        Code.TOO_MANY_ATTEMPTS: Meaning(
            "the labels of one batch were to be evaluated more than 64 times",
            "ask why: with honest servers and occasionally working connections this does not happen",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
        Code.TOO_MANY_CHECKS: Meaning(
            "the check of one batch's votes was broken off 64 times",
            "both servers' logs say by whom (check_broken_off): ask why. The batch can only be given up",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
        Code.UNSIGNED_VOTES: Meaning(
            "votes without the signature of the hospital whose seat it is: it, or whoever passed them on, is at fault",
            "compare the hospital's log; the others' votes count",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
        Code.BAD_SEAL: Meaning(
            "a party's share does not open with the guardian's key",
            "that party has another version of the study, or its software is at fault; the others' votes count",
            OPERATOR | ASKER,
            Cost.STANDS,
        ),
        Code.BAD_VOTES: Meaning(
            "a party's votes, or its shares of them, are not one vote per query",
            "that party has another version of the study, or its software is at fault; the others' votes count",
            OPERATOR | ASKER,
            Cost.STANDS,
        ),
        Code.VOTES_BARRED: Meaning(
            "a hospital's votes were refused in three batches, where queries are hidden: no more are taken",
            "both logs name the batches (votes_refused): the hospital's software, or whoever asked, is at fault",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
    },
    "What a node refuses to answer": {
        Code.UNKNOWN_STUDY: Meaning(
            "the study is not approved here", "`conclave-party approve`", COMMAND | ANSWERED | GUARDIAN
        ),
        Code.NOT_APPROVED: Meaning(
            "the study is not approved here for the data set that node.toml names",
            "approve it, or set data.name back",
            COMMAND | ANSWERED,
        ),
        Code.OTHER_STUDY: Meaning(
            "a request under another digest than was approved", "the two sides have different files", ANSWERED
        ),
        Code.OTHER_COORDINATOR: Meaning(
            "another coordinator than the one agreed", "ask who asks", COMMAND | ANSWERED | GUARDIAN
        ),
        Code.STUDY_ENDED: Meaning("its last day is over", "nothing", COMMAND | ANSWERED | GUARDIAN),
        Code.WRONG_SEAT: Meaning("the seat is not this party's", "correct the roster", ANSWERED),
        Code.OTHER_POOL: Meaning(
            "a query is not the one of the approved pool", "tell the operator: the pool is fixed", BOTH
        ),
        Code.OTHER_SHAPE: Meaning("queries of another shape than agreed", "the operator has another pool", ANSWERED),
        Code.BATCH_TOO_LARGE: Meaning(
            "more queries than the batch limit allows", "the operator's software is at fault", ANSWERED
        ),
        Code.QUERY_LIMIT: Meaning(
            "a query beyond the study's limit, or more of them than the limit in the study's life",
            "the operator's software is at fault",
            ANSWERED | GUARDIAN,
        ),
        Code.QUERY_REPEATED: Meaning(
            "a query of an earlier batch, in a new one",
            "the operator's software is at fault, or a second coordinator",
            ANSWERED | GUARDIAN,
        ),
        Code.NOT_QUERIER: Meaning(
            "another hospital asks than the study's `querier`",
            "ask in the study whose [confidentiality] names this hospital as its querier",
            COMMAND | OPERATOR | ASKER | GUARDIAN,
        ),
        Code.NOT_ENROLLED: Meaning("`ask` before there is a certificate", "run: conclave-party enrol", COMMAND),
        Code.QUORUM_LOST: Meaning(
            "too few parties answered `ask`",
            "run the same command again when the absent ones are back, and those that refused have fixed"
            " what they name; repeating costs nobody anything",
            COMMAND,
            Cost.STANDS,
        ),
        Code.NO_QUERIER: Meaning(
            "a guardian was asked to deal in a study whose queries are public",
            "ask in the study that names a `querier`",
            GUARDIAN | ASKER,
        ),
        Code.NO_INFERENCE: Meaning(
            "a party was asked for hidden votes that it did not compute, or lost in a restart",
            "nothing to do: the next attempt computes them again",
            ANSWERED,
        ),
        Code.OTHER_SHARERS: Meaning(
            "a coordinator asked to mask or open a sum among other parties than before",
            "keep the log: with an honest coordinator this does not happen",
            BOTH,
            Cost.STANDS,
        ),
        Code.OTHER_SURVIVORS: Meaning(
            "a coordinator asked to agree on or open a sum over other parties than before",
            "keep the log: with an honest coordinator this does not happen",
            BOTH,
            Cost.STANDS,
        ),
        Code.NOT_A_SHARER: Meaning(
            "a sum was to be masked by a party that is not in it", "the operator's log names who was left out", BOTH
        ),
        Code.NOT_A_SURVIVOR: Meaning(
            "a sum was to be agreed on or opened by a party that is not in it",
            "the operator's log names who was left out",
            BOTH,
            Cost.STANDS,
        ),
        Code.TOO_FEW_PARTIES: Meaning(
            "fewer parties are left in a masked sum than the study allows",
            "the batch waits until more are back",
            BOTH,
            Cost.STANDS,
        ),
        Code.WEAK_KEY: Meaning(
            "in a masked sum, a hospital's keys are not keys that its software makes; it was left out, and the sum went"
            " on",
            "ask that hospital to install the node again: what answers is not this software",
            OPERATOR,
        ),
        Code.BAD_SHARES: Meaning(
            "in a masked sum, a hospital sent shares that cannot be used, which was proved; it was left out before"
            " anybody was charged",
            "ask that hospital to install the node again: what answers is not this software",
            OPERATOR,
        ),
        Code.FALSE_ACCUSATION: Meaning(
            "in a masked sum, a hospital said that another's shares cannot be used, and could not prove it; it was left"
            " out before anybody was charged",
            "ask that hospital to install the node again: what answers is not this software",
            OPERATOR,
        ),
        Code.WRONG_SHARE: Meaning(
            "in a masked sum, a hospital opened another share than it had received; the sum went on without that share",
            "ask that hospital to install the node again: what answers is not this software",
            OPERATOR,
            Cost.STANDS,
        ),
        Code.WRONG_SEED: Meaning(
            "in a masked sum, a hospital opened another seed than it had committed to; the others opened it for it",
            "ask that hospital to install the node again: what answers is not this software",
            OPERATOR,
            Cost.STANDS,
        ),
        Code.TOO_FEW_SHARES: Meaning(
            "too few hospitals are there to open what this one masked with",
            "the batch waits until more are back",
            OPERATOR,
            Cost.STANDS,
        ),
        Code.UNSIGNED_OUTCOME: Meaning(
            "an outcome without the guardian's signature",
            "ask the operator why the guardian did not sign",
            ANSWERED,
            Cost.STANDS,
        ),
        Code.OTHER_VOTES: Meaning(
            "the guardian counted other votes of this seat than its ledger holds",
            "find out who else has this hospital's key, or a copy of its node; tell the guardian",
            ANSWERED,
            Cost.STANDS,
        ),
        Code.NO_SUCH_STEP: Meaning(
            "a coordinator sent a step that the study's level of confidentiality does not have",
            "ask the operator for the versions of both sides",
            ANSWERED,
        ),
        Code.BATCH_REUSED: Meaning(
            "a batch number that was answered in another request",
            "a second coordinator, or one without its ledger",
            ANSWERED | GUARDIAN,
            Cost.STANDS,
        ),
        Code.UNKNOWN_BATCH: Meaning("an outcome of a batch that was never charged", "nothing was lost", ANSWERED),
        Code.BAD_OUTCOME: Meaning(
            "an outcome of another length", "the operator's software is at fault", ANSWERED, Cost.STANDS
        ),
        Code.DIGEST_MISMATCH: Meaning(
            "an outcome under another digest", "the operator's software is at fault", ANSWERED, Cost.STANDS
        ),
        Code.SETTLED_OTHERWISE: Meaning(
            "a batch was settled before, at another amount",
            "keep the log: two outcomes were signed",
            ANSWERED,
            Cost.STANDS,
        ),
        Code.SETTLES_UPWARDS: Meaning(
            "an amount above what was reserved", "the operator's software is at fault", ANSWERED, Cost.STANDS
        ),
        Code.WITHDRAWN: Meaning(
            "the study was withdrawn here",
            "nothing: this is final; the operator may make a new study",
            COMMAND | ANSWERED,
        ),
        Code.NO_TEACHERS: Meaning("no teachers are trained", "run: conclave-party train STUDY", COMMAND | ANSWERED),
        Code.NO_RECORD_VOTES: Meaning(
            "the votes of the hospital's records are not counted, or their file cannot be read",
            "run: conclave-party approve STUDY --queries FILE, which counts them again",
            ANSWERED | NODE,
        ),
        Code.COULD_NOT_VOTE: Meaning(
            "the node's own teachers or votes failed; who asks is told no more, because the reason may reveal records",
            "the log of `run` says why, and `teacher_process.log` beside the teachers",
            ANSWERED,
        ),
        Code.TEACHERS_FAILED: Meaning(
            "in the node's own log: why its teachers could not be used; whoever asks is told `could_not_vote`",
            "the entry names the file; `conclave-party train STUDY` trains teachers again",
            NODE,
        ),
        Code.LATE: Meaning(
            "by the coordinator: a seat was asked and had not answered at the deadline",
            "it is asked again; a longer `deadline_s` or a smaller `batch_limit` in the next study",
            OPERATOR,
            Cost.STANDS,
        ),
        Code.BAD_RECEIPT: Meaning(
            "a seat's receipt for an outcome cannot be true",
            "ask that hospital what its ledger says; the release names it",
            OPERATOR | RELEASE,
            Cost.STANDS,
        ),
        Code.TEACHERS_LATE: Meaning(
            "no votes yet, shortly before the deadline; the reason says for how long they have predicted. They"
            " continue, and the coordinator asks again",
            "nothing; a longer `deadline_s` or a smaller `batch_limit` in the next study",
            ANSWERED,
        ),
        Code.ABSENT: Meaning(
            "by the coordinator: a seat was not connected before the deadline",
            "nothing: it is asked again when its node is back",
            OPERATOR | ASKER,
            Cost.STANDS,
        ),
        Code.BAD_REPLY: Meaning(
            "by the coordinator: a seat's reply is not valid for the step",
            "update the node's software, or the operator's",
            OPERATOR | ASKER,
            Cost.STANDS,
        ),
    },
}
