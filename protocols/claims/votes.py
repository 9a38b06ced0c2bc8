"""What the sentences about a study say of what votes: teachers, or protected units once (protocols/study/votes.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

EACH_RECORD: Final = (
    "A patient with several records is not covered as a whole: each record on its own is. The unit 'patient' covers "
    "all that a hospital has of one."
)
SEVERAL_RECORDS: Final = (
    "A patient with several records at one hospital is covered as a whole only where that hospital names the patient's "
    "column (`data.patient`), as then all of them lie with one teacher; elsewhere only each record on its own is "
    "covered."
)
_ONE_RECORD = "A person with several records, or a whole hospital's data, is not what this ε protects."


@dataclass(frozen=True, kw_only=True)
class VoteWords:
    """What differs between kinds of votes.

    once: whether each unit's data are used once; units: whose data one epsilon protects, by the unit's name; views:
    what the adversary sees; of_pooled: the unit "record" where several teachers learn one; more_of_record: what that
    unit does not cover, without and with pooled data; several_records, unnamed: the same in a release, and in an
    approval without and with the patient's column named; every, sent, most: what a party's votes are called; charged,
    settled: when a query is charged, without and with outcomes that lower it; saw_clear, saw_first, saw_second: what
    the coordinator of clear votes, and the two servers saw; learned: and what else, if they departed from the protocol,
    with `{epsilon}`; guardian_sees_label: where the labels are public; refused: what else a guardian can do; kept,
    replies, released: what stays at a hospital, in its ledger, and with the coordinator; models: what erasing a record
    leaves.
    """

    once: bool
    units: dict[str, str]
    views: dict[str, str]
    of_pooled: str = ""
    more_of_record: tuple[str, str]
    several_records: str
    unnamed: tuple[str, str]
    every: str
    sent: str
    most: str
    charged: str
    settled: str
    saw_hospital: str
    saw_public: str
    saw_clear: str
    saw_first: str
    saw_second: str
    learned: str
    guardian_sees: str
    guardian_sees_label: str
    departs: str
    refused: str
    kept: str
    replies: str
    released: str
    models: str

    @property
    def sentences(self) -> dict[str, str]:
        """Its texts by name."""
        return {name: text for name, text in vars(self).items() if isinstance(text, str)}


_ABSENT = "which hospital was absent or refused; sizes of ledgers."
_SHARES = "Of every vote one of two shares, which alone says nothing."
_LABELS = "the released labels, which queries got none, and everything made from them"
_VOTES: Final = {
    "teacher": VoteWords(
        once=False,
        units={
            "record": "one record of one hospital, which lies with one teacher and moves one vote",
            "party": "all data of one hospital, which move the votes of all of its teachers",
        },
        views={
            "label": _LABELS,
            "histogram": "the noisy counts of votes behind each label, and everything made from them",
        },
        of_pooled="one record, which may be learned by several teachers, and moves the votes of all of them",
        more_of_record=(
            "A person with several records is covered where all of them lie with one teacher, which casts one vote; a "
            "whole hospital's data is not what this ε protects.",
            _ONE_RECORD,
        ),
        several_records=SEVERAL_RECORDS,
        unnamed=(f"data.patient is not set. {SEVERAL_RECORDS}", ""),
        every="every vote",
        sent="its models' votes",
        most="one vote",
        charged="Every query costs the same, answered or not. A batch is charged for good when it is asked; no "
        "outcome, true or false, changes a charge.",
        settled="A query that is not answered costs less. A batch is charged as if all of it were answered, and once "
        "lowered by a signed outcome at nodes that settle.",
        saw_hospital="the public queries, which of them were answered, and its own votes. Not the votes of others.",
        saw_public="the released labels, which queries were refused, the student trained on them, and this folder.",
        saw_clear=f"every hospital's votes on every query that it answered; {_ABSENT} No record and no teacher.",
        saw_first=f"labels, which queries were refused, {_ABSENT} {_SHARES}",
        saw_second="labels, which hospitals took part, which queries were refused. Of every vote the other share.",
        learned="; if it departed from the protocol, it learned at most a function of the noisy counts, up to "
        "epsilon {epsilon}",
        guardian_sees="which seats answered, whose votes were malformed, which queries were answered; no vote, no "
        "count and no label",
        guardian_sees_label="which seats answered, whose votes were malformed, which queries were answered, and the "
        "labels; no vote and no count",
        departs="A server that departs from the protocol can choose its own noise in one query, unnoticed with "
        "probability 1/4 a try: in at least one query with 58 %, before its third failure ends the study. With one "
        "hospital's help it can shift the counts and so flip labels, unnoticed; alone it is noticed if it enters "
        "counts that are not those of the votes. It learns at most a function of the noisy counts, "
        "with the other server's noise: labels, refusals, and one bit per batch by whether it breaks off (three that "
        "do end the study). That costs what noisy counts cost, up to epsilon {epsilon}; the figures charge labels, "
        "which holds against servers that run the protocol.",
        refused=" It can have honest hospitals' votes refused.",
        kept="its records, the models that it trained on them until it deletes them, what it approved, its ledger with "
        "a signed log of what was asked",
        replies="its own votes",
        released="the labels",
        models=" Models trained at the hospital hold the record until they are deleted and trained again.",
    ),
    "record": VoteWords(
        once=True,
        units={
            "record": "one record of one hospital, which votes once in the whole study",
            "patient": "all records of one patient at one hospital, which together have at most one vote, once in the "
            "whole study",
            "party": "all data of one hospital, which together have at most one vote, once in the whole study",
        },
        views={"histogram": "the noisy sums of all records' votes, and everything made from them"},
        more_of_record=(_ONE_RECORD, _ONE_RECORD),
        several_records=EACH_RECORD,
        unnamed=(EACH_RECORD, EACH_RECORD),
        every="the sum of each hospital's records' votes",
        sent="the sum of its records' votes",
        most="one vote per record",
        charged="The one batch is charged for good when it is asked; no outcome, true or false, changes a charge.",
        settled="The one batch is charged for good when it is asked; no outcome, true or false, changes a charge.",
        saw_hospital="the public queries and its own records' votes. Not the votes of others.",
        saw_public="the noisy sums, the labels and the student made from them, and this folder.",
        saw_clear=f"the sum of each hospital's records' votes, without noise; {_ABSENT} No record.",
        saw_first=f"the noisy sum of all hospitals' votes; {_ABSENT} {_SHARES}",
        saw_second="the noisy sum of all hospitals' votes; which hospitals took part. The other share.",
        learned="",
        guardian_sees="which seats answered, and the noisy sum of all their records' votes; of no single seat",
        guardian_sees_label="which seats answered, and the noisy sum of all their records' votes; of no single seat",
        departs="A server that departs from the protocol can change the sums. A hospital proves that the number "
        "of records it declares could give its sum, or one of that length; not that the records are true.",
        refused="",
        kept="its records, its settings, what it approved, its ledger with a signed log of what was asked",
        replies="its records' summed votes",
        released="the noisy sums, the labels",
        models="",
    ),
}
# A count says the same of records, but what is made of their sums.
_COUNT: Final = replace(
    _VOTES["record"],
    units={
        "record": "one record of one hospital, which is counted once in the whole study",
        "patient": "all records of one patient at one hospital, who is counted once in the whole study",
    },
    views={"histogram": "the noisy counts, and everything made from them"},
    every="each hospital's counts",
    sent="the counts of its records",
    most="one record in each column",
    saw_hospital="which columns are counted, and its own records' counts. Not the counts of others.",
    saw_public="the noisy counts, and this folder.",
    saw_clear=f"each hospital's counts, without noise; {_ABSENT} No record.",
    saw_first=f"the noisy counts of all hospitals together; {_ABSENT} {_SHARES}",
    saw_second="the noisy counts of all hospitals together; which hospitals took part. The other share.",
    guardian_sees="which seats answered, and the noisy counts of all of them together; of no single seat",
    guardian_sees_label="which seats answered, and the noisy counts of all of them together; of no single seat",
    replies="its counts",
    released="the noisy counts",
)
VOTES: Final = {**_VOTES, "count": _COUNT}
