"""Who sees what at each level, and from whom nothing protects."""

from __future__ import annotations

from protocols.claims.protection import Protection
from protocols.errors import InvalidInput
from protocols.plural import at_most, counted


def not_protected_from(study: Protection) -> str:
    """Who can see votes, or more than the figures allow, at the study's level."""
    asks = study.asks
    match study.level:
        case "clear":
            return (
                f"{asks}: it sees {_every(study)} in the clear, draws the noise, and is trusted with both. These "
                "figures protect nobody from its operator, or from anyone who breaks into it."
            )
        case "secure_sum":
            return (
                f"{asks} together with more than {counted(study.colluders, 'party')}: what they know together about "
                "votes and noise weakens or undoes these figures. A party can add any vector to the sum: nothing "
                f"limits it to {'one vote a record' if study.records else 'one vote'}."
            )
        case _:
            models = ", and the models that answered" if study.hides_queries else ""
            against = "" if study.hides_queries else " Against one server alone the figures are computational."
            return (
                f"{asks} and the guardian together: if they collude they see {_every(study)}{models}. "
                f"{_departs(study)}{against}"
            )


def leaves(study: Protection) -> str:
    """What leaves a hospital, and what does not, in two sentences."""
    votes = "the sum of its records' votes" if study.records else "its models' votes"
    asked = "questions that only the hospital that asks can read" if study.hides_queries else "public questions"
    how = {
        "clear": "which the coordinator reads",
        "secure_sum": "with noise and under masks, so that only the sum over all hospitals can be read",
    }.get(study.level, "in two shares, neither of which says anything alone")
    return (
        f"No record leaves a hospital: what leaves it is {votes} on {asked}, {how}. With it go signed receipts of what "
        "its ledger charged."
    )


def who_sees_votes(study: Protection) -> str:
    """Who sees a vote and who adds the noise, in one sentence."""
    match study.level:
        case "clear":
            return f"{study.asks} sees {_every(study)}, draws the noise, and is trusted with both"
        case "secure_sum":
            return (
                f"{study.asks} sees noisy sums of all votes and no vote, as long as at most "
                f"{counted(study.colluders, 'party')} collude with it; each party adds some of the noise"
            )
        case "two_server":
            return f"nobody sees a vote, unless {study.asks} and the guardian {study.guardian} collude; each adds noise"
        case _:
            return (
                f"nobody sees a vote if {study.asks} and the guardian {study.guardian} run the software unchanged and "
                "do not collude: one of them alone that departs from it reads votes. Each adds noise"
            )


def noise_added(study: Protection, *, votes: float) -> str:
    """Who adds how much noise. votes: the standard deviation of what each sum has in the end, if every seat voted."""
    match study.level:
        case "clear":
            return f"{_first(study.asks)} adds all of the noise: {votes:.4g} votes (standard deviation) to each count."
        case "secure_sum":
            return (
                f"Each party adds a part of the noise: {votes:.4g} votes (standard deviation) to each count if all "
                "vote. The figures count on the part of the honest ones alone."
            )
        case _:
            return (
                "Each of the two servers adds noise of its own, of the size stated here, also to a threshold: together "
                f"{votes:.4g} votes (standard deviation) to each count. The figures count on one server's alone."
            )


def who_saw_what(study: Protection, *, coordinator: str) -> list[dict[str, str]]:
    """Who saw what in a study of public queries, and what protects the hospitals' data from them.

    coordinator: its name. Raises InvalidInput for a study of hidden queries, which has no release.
    """
    if study.hides_queries:
        raise InvalidInput("level is 'hidden_queries'; allowed: one of public queries, as no other has a release")
    return [
        *_servers(study, coordinator),
        _saw(
            "each hospital",
            "the public queries, which of them were answered, and its own votes. Not the votes of others."
            if not study.records
            else "the public queries and its own records' votes. Not the votes of others.",
            "as the public, for the data of the other hospitals",
        ),
        _saw(
            "the public, and whoever holds this release",
            "the released labels, which queries were refused, the student trained on them, and this folder."
            if not study.records
            else "the noisy sums, the labels and the student that are made of them, and this folder.",
            f"each hospital's epsilon in this statement; {study.figures}",
        ),
        _saw("the network between them", "encrypted traffic: sizes and times", "mutual TLS"),
    ]


def _servers(study: Protection, coordinator: str) -> list[dict[str, str]]:
    who, public = f"the coordinator, {coordinator}", f"as the public; {study.figures}"
    absent = "which party was absent or refused; sizes of ledgers."
    if study.level == "clear":
        saw = f"every party's votes on every query it answered, in the clear; {absent} No record and no teacher."
        if study.records:
            saw = f"the sum of each party's records' votes, without noise; {absent} No record."
        return [_saw(who, saw, "none by differential privacy: it is trusted, by contract")]
    if study.level == "secure_sum":
        saw = f"for each query the noisy histogram of all votes together; {absent} No vote of a single party."
        return [_saw(who, saw, f"{public}, if at most {counted(study.colluders, 'hospital')} collude with it")]
    shares = "Of every vote one of two shares, which alone says nothing."
    more = (
        "; if it departed from the protocol, it learned at most a function of the noisy counts, up to epsilon "
        f"{at_most(study.counts_epsilon)}"
    )
    by_one = f"labels, which queries were refused, {absent} {shares}"
    by_other = "labels, which parties took part, which queries were refused. Of every vote the other share."
    if study.records:
        opened = "the noisy sum of all parties' votes;"
        more = ""
        by_one, by_other = f"{opened} {absent} {shares}", f"{opened} which parties took part. The other share."
    return [
        _saw(who, by_one, f"{public}; computational, if it does not collude with the guardian{more}"),
        _saw(
            f"the guardian, {study.guardian}",
            by_other,
            f"{public}; computational, if it does not collude with the coordinator{more}",
        ),
    ]


def _saw(who: str, saw: str, protection: str) -> dict[str, str]:
    return {"who": who, "saw": saw, "protection": protection}


def guardian_sees(study: Protection) -> str:
    """What a guardian that approves a study will see. Raises InvalidInput for a level without a guardian."""
    if not study.guarded:
        raise InvalidInput(f"level is {study.level!r}; allowed: two_server, hidden_queries, which have a guardian")
    if study.records:
        return "which seats answered, and the noisy sum of all their records' votes; of no single seat"
    seen = "which seats answered, whose votes were malformed, which queries were answered"
    return (
        f"{seen}, and the labels; no vote and no count"
        if study.level == "two_server"
        else (f"{seen}; no vote, no count and no label")
    )


def _departs(study: Protection) -> str:
    """What one server that departs from the protocol can do, in sentences."""
    if study.hides_queries:
        return (
            "Either of them alone can read hospitals' votes, without noise, if it departs from the protocol: no "
            "epsilon holds against it. The figures hold, computationally, while both run the software unchanged."
        )
    if study.records:
        return (
            "A server that departs from the protocol can change the sums, and a party can add any vector to them: "
            "nothing limits it to one vote a record."
        )
    return (
        "A server that departs from the protocol can choose its own noise in one query, unnoticed with probability "
        "1/4. With one hospital's help it can shift the counts and so flip labels, unnoticed; alone it is noticed if "
        "it enters other counts than those of the votes. It learns at most a function of the noisy counts, with the "
        "other server's noise: labels, refusals, and one bit a batch by whether it breaks off (three that do end the "
        f"study). That costs what noisy counts cost, up to epsilon {at_most(study.counts_epsilon)}; the figures charge "
        "labels, which holds against servers that run the protocol."
    )


def not_covered_by_guardian(study: Protection) -> list[str]:
    """What a guardian is told before it approves a study."""
    refused = "" if study.records else " It can have honest hospitals' votes refused."
    return [
        f"If you and {study.asks} combine what you hold, votes are in the clear; nobody else prevents that.",
        f"{_departs(study)}{refused}",
    ]


def _first(text: str) -> str:
    return text[0].upper() + text[1:]


def _every(study: Protection) -> str:
    return "the sum of each party's records' votes" if study.records else "every vote"
