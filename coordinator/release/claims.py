"""What a privacy statement says in words: for a data-protection officer, who need not know the mathematics."""

from __future__ import annotations

from protocols.study.levels import GuardedLevel, SecureSum
from protocols.study.study import ADJACENCY, Study

UNIT = {
    "record": "one record: all that one row of one hospital's data can change. A patient with several records at one "
    "hospital is not covered by these figures; each of the records is.",
    "party": "all data of one party together: whatever a hospital had contributed instead.",
}
VIEW = {
    "label": "whoever sees the released labels, which queries were refused, and everything made from them.",
    "histogram": "whoever sees the noisy counts of votes; the labels are made from them.",
}
PUBLISHABLE = (
    "The guaranteed figures follow from budgets and noise that were fixed before the first query, not from votes: they "
    "are safe to publish. They hold if each node charged what the released labels cost: a node that settles believes "
    "the coordinator's signed outcomes, which `verify` holds against the labels. The budget used is an operator's "
    "reading of the ledger, not an epsilon."
)
SEVERAL = (
    "A patient known to several hospitals moves the votes of all of them; no single hospital's epsilon covers that "
    "patient. Each figure bounds the worst choice of so many hospitals, whoever took part, was absent or stopped "
    "early, from the hospitals' caps alone; for the unit 'record', the patient has one record at each of them. "
    "Where no figure stands, delta does not cover what is set aside for the noise as it is drawn (for float64 noise at "
    "an epsilon of some 15 or more): take it as no guarantee."
)
EARLIER = (
    "The figures hold for a patient whose data were in all of these releases under the same name of the party. It is "
    "assumed that every release of the consortium that used these data is listed, that each one's figures hold, and "
    "that no budget was chosen by looking at private data. Epsilons add up, or Renyi divergences at one common order, "
    "whichever is less; deltas add up."
)
COORDINATOR_NOT_COVERED = {
    "clear": "The coordinator: it sees every vote in the clear (confidentiality level 'clear') and is trusted with "
    "them. These figures protect nobody from its operator, or from who breaks into it.",
    "secure_sum": "The coordinator together with more hospitals than the study counts on (`colluders`): what they know "
    "of votes and noise among them weakens or undoes these figures. A hospital can add any vector to the sum: nothing "
    "holds it to one vote.",
    "two_server": "Coordinator and guardian together: if they collude they see every vote. A malicious server can flip "
    "labels, and learn more of the counts than labels show, by shifting its share and beginning again. Against one "
    "server alone the figures are computational.",
}
NOT_COVERED = (
    "What a hospital does outside this study: other uses of the same data, its teachers' files, its own logs.",
    "Releases of other consortia or queriers on the same data. Each hospital's node counts them against one lifetime "
    "cap, which this statement does not know.",
    "Patients with several records at one hospital, where the unit is 'record'.",
    "The public queries: they are known to every party, and nothing protects whoever they are about.",
    "What can be inferred about a person from the labels as facts about the population: differential privacy bounds "
    "what one person's data add, not what is true of everybody.",
    "Whether labels or student are right: a guarantee of privacy is none of accuracy or fitness for clinical use.",
    "Side channels: how long a party took to answer, and when, is seen by the coordinator and the network; the audit "
    "log in this release shows when each batch was asked and settled.",
    "Absences: that a party was absent or refused is public, and is taken not to depend on its patients' data.",
)
VERIFY = (
    "Run `conclave-coordinator verify FOLDER --authority authority.pem`, with the authority's certificate as you got "
    "it when you enrolled, not the copy in the folder. It needs no account and no network.",
    "It checks the signature and every file's hash, the chain of the coordinator's audit log, every outcome that was "
    "sent and every receipt that a party signed, that both agree with the released labels, that receipts cover every "
    "charge but those that are stated as unproven or whose last receipt was refused, that each charge recomputes from "
    "the study, that no cap was passed, and that the figures here recompute. It does not know which certificates were "
    "revoked.",
    "Each hospital can compare with its own node: `conclave-party budget show` and `conclave-party audit verify`.",
)


def receipt_refused(seat: str, batch: int, *, confirmed: bool) -> str:
    """What a refused receipt means. confirmed: whether a later receipt of the seat covers what it was charged."""
    after = "a later receipt confirms its ledger" if confirmed else "its ledger's state is not confirmed"
    return f"the receipt of {seat} for batch {batch} was refused, so it proves nothing; {after}"


def not_covered(study: Study) -> list[str]:
    """What the figures do not cover at the study's level of confidentiality."""
    return [COORDINATOR_NOT_COVERED[study.confidentiality.name], *NOT_COVERED]


def who_saw_what(study: Study, *, coordinator: str) -> list[dict[str, str]]:
    """Who saw what, under the trust model of the study's level of confidentiality."""
    return [
        *_servers(study, coordinator),
        {
            "who": "each hospital",
            "saw": "the public queries, which of them were answered, and its own votes. Not the votes of others.",
            "protection": "as the public, for the data of the other hospitals",
        },
        {
            "who": "the public, and whoever holds this release",
            "saw": "the released labels, which queries were refused, the student trained on them, and this folder.",
            "protection": f"the epsilons below; unit {study.unit}, adjacency {ADJACENCY}, view {study.view}",
        },
        {
            "who": "the network between them",
            "saw": "encrypted traffic: sizes and times",
            "protection": "mutual TLS",
        },
    ]


def _servers(study: Study, coordinator: str) -> list[dict[str, str]]:
    who = f"the coordinator, {coordinator}"
    public = f"as the public; unit {study.unit}, adjacency {ADJACENCY}, view {study.view}"
    level = study.confidentiality
    if isinstance(level, SecureSum):
        return [
            {
                "who": who,
                "saw": "for each query the noisy histogram of all votes together; which party was absent or refused; "
                "sizes of ledgers. No vote of a single party.",
                "protection": f"{public}, if at most {level.colluders} hospitals collude with it",
            }
        ]
    if isinstance(level, GuardedLevel):
        return [
            {
                "who": who,
                "saw": "labels, which queries were refused, which party was absent or refused; sizes of ledgers. Of "
                "every vote one of two shares, which alone says nothing.",
                "protection": f"{public}; computational, if it does not collude with the guardian",
            },
            {
                "who": f"the guardian, {level.guardian}",
                "saw": "which parties took part, which queries were refused. Of every vote the other share, and no "
                "label.",
                "protection": f"{public}; computational, if it does not collude with the coordinator",
            },
        ]
    return [
        {
            "who": who,
            "saw": "every party's votes on every query it answered, in the clear; which party was absent or refused; "
            "sizes of ledgers. No record of a patient and no teacher.",
            "protection": "none by differential privacy: it is trusted, by contract",
        }
    ]


STOP = {
    "pool_exhausted": "every query of the pool was asked",
    "budget_exhausted": "a party's budget did not bear one more query",
    "all_budgets_exhausted": "no party's budget bore one more query",
    "quorum_lost": "too few parties were left to answer",
    "guardian_lost": "the guardian did not come back",
    "failed": "the labelling failed before its end, for a reason that its operator knows",
}
