"""What the codes of a study around its batches mean: caps and approvals, labellings, audits."""

from __future__ import annotations

from typing import Final

from protocols.refusals.code import Code
from protocols.refusals.meaning import COMMAND, NODE, OPERATOR, Cost, Meaning

STUDIES: Final[dict[str, dict[Code, Meaning]]] = {
    "Lifetime caps and approvals": {
        Code.LIFETIME_CAP: Meaning(
            "the study does not fit into what is left",
            "see conclave-party budget show; a withdrawn study gives back what it did not spend",
            COMMAND,
        ),
        Code.NO_LIFETIME_CAP: Meaning(
            "no cap is set for the study's unit",
            "add it in node.toml beside the others, and approve again: earlier studies count under it, too",
            COMMAND,
        ),
        Code.LIFETIME_CAP_CHANGED: Meaning(
            "`node.toml` has another cap than was promised for a unit, or lacks one",
            "put that cap back into node.toml; a cap for another unit may be added beside it",
            COMMAND,
        ),
        Code.LIFETIME_FORFEITED: Meaning(
            "nobody can prove what was spent of the data set's caps, so they are charged in full",
            "approve studies for a data set of other patients, under its own name",
            COMMAND,
        ),
        Code.KNOWN_RECORDS: Meaning(
            "people of this data set are counted under another's lifetime cap, or cannot be compared with them",
            "give the data set that name; if these are other people, say so: conclave-party approve ... --other-people "
            "DATA_SET",
            COMMAND,
        ),
        Code.SPOKE_ELSEWHERE: Meaning(
            "a patient has spoken, or trained teachers, in another seat of the study",
            "give patients back the privacy group that they had then",
            COMMAND | NODE,
        ),
        Code.LIFETIME_CURRENCY: Meaning(
            "the study has no bound in the cap's currency", "it cannot share this data set's cap", COMMAND
        ),
        Code.APPROVED_ELSEWHERE: Meaning(
            "another home approved it for this data set and has its ledger",
            "answer from that home: two would spend twice",
            COMMAND | NODE,
        ),
        Code.NOT_WITHDRAWN: Meaning("only a withdrawn study gives anything back", "withdraw it first", COMMAND),
        Code.NOT_CONFIRMED: Meaning(
            "the question was not answered with yes", "nothing was approved or written; run the command again", COMMAND
        ),
    },
    "A labelling": {
        Code.LABELLING_STOPPED: Meaning(
            "too few parties answered, or the guardian is gone",
            "fix what the message names, then `resume`; `give-up` if they never come back",
            COMMAND | OPERATOR,
            Cost.STANDS,
        ),
        Code.LABELLING_FAILED: Meaning(
            "an error ended it",
            "fix what the message names, then `resume`; `give-up` if they never come back",
            COMMAND | OPERATOR,
            Cost.STANDS,
        ),
        Code.LABELLING_RUNS: Meaning(
            "`give-up` while the labelling is under way",
            "see conclave-coordinator status; a lower patience_s takes effect after a restart of serve",
            COMMAND,
            Cost.STANDS,
        ),
        Code.CAN_BE_FINISHED: Meaning(
            "`give-up` of a batch whose missing hospitals are connected again",
            "run conclave-coordinator resume; the batch continues unchanged, and costs nothing more",
            COMMAND,
            Cost.STANDS,
        ),
        Code.NO_OPEN_BATCH: Meaning(
            "`give-up`, but every batch was released or given up",
            "there is nothing to give up; conclave-coordinator status shows the study's progress",
            COMMAND,
        ),
        Code.OTHER_BATCH: Meaning(
            "a different batch is stuck now than the one that was shown",
            "run `give-up` again, and read what it shows",
            COMMAND,
            Cost.STANDS,
        ),
        Code.GIVEN_UP: Meaning(
            "a batch was given up while its labels were computed",
            "`resume`: the labels are dropped, and the next batch is asked",
            OPERATOR,
            Cost.STANDS,
        ),
    },
    "Findings of an audit": {
        Code.UNPROVEN_CHARGES: Meaning(
            "`release`: seats were charged, and no signed receipt covers it; a refused receipt of an earlier batch "
            "does not excuse it",
            "keep serve running until those nodes have connected and settled (a serve that is started again tells "
            "them once more), then release again; where a receipt is lost for good, state it: release --unproven SEAT",
            COMMAND,
            Cost.STANDS,
        ),
        Code.VERIFICATION_FAILED: Meaning(
            "a check of a release failed", "do not use the release; the line says which check", COMMAND
        ),
        Code.NOT_VERIFIED: Meaning(
            "a release with an invalid signature or file", "get the release again from the coordinator", COMMAND
        ),
        Code.CHAIN_BROKEN: Meaning(
            "an entry of this node's log was changed or removed",
            "somebody altered the ledger's file",
            COMMAND,
            Cost.UNKNOWN,
        ),
        Code.SUMS_DIFFER: Meaning(
            "charges, log and account do not agree", "somebody altered the ledger's file", COMMAND, Cost.UNKNOWN
        ),
        Code.BAD_EVIDENCE: Meaning(
            "a stored frame is not what was charged, or does not verify",
            "somebody altered the ledger's file",
            COMMAND,
            Cost.STANDS,
        ),
        Code.NO_EVIDENCE: Meaning(
            "a charge without the signed request for it", "somebody altered the ledger's file", COMMAND, Cost.STANDS
        ),
        Code.ROLLED_BACK: Meaning(
            "the coordinator signed that it knew an entry that is not here",
            "this is an older copy",
            COMMAND,
            Cost.UNKNOWN,
        ),
        Code.OUTCOME_FALSE: Meaning(
            'signed "not answered", and the release has a label',
            "a lie, and its proof: keep the home, show it to the consortium",
            COMMAND,
            Cost.UNDERCOUNTED,
        ),
        Code.OUTCOME_DIFFERS: Meaning(
            'signed "answered", and the release has no label',
            "it cost this hospital too much; ask the operator",
            COMMAND,
            Cost.OVERCHARGED,
        ),
        Code.RELEASE_DIFFERS: Meaning(
            "the release has fewer queries than were asked", "ask the operator", COMMAND, Cost.STANDS
        ),
        Code.OTHER_LABELS: Meaning(
            "a release has other labels of a batch than the guardian computed and signed, or lacks its signature",
            "do not use the release; show it to the consortium and to the guardian",
            COMMAND,
            Cost.STANDS,
        ),
    },
}
