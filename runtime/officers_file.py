"""An officer's file: what an assessment under GDPR article 35 asks about a study, filled in where the system knows.

Its text is officers_file.html, where a line that begins with [ ] is a blank, for what only people know. The file is no
part of what is signed, so that it can be written into.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from protocols.claims.coverage import not_covered_by_release
from protocols.claims.in_short import in_short
from protocols.claims.kept import BYTES, kept, keys, withdrawal
from protocols.claims.strength import Figure, percent_at_most, strength
from protocols.claims.who_sees import leaves, who_saw_what
from protocols.plural import at_most, counted
from protocols.study.deployed import DeployedStudy
from protocols.study.protection import protection_of
from protocols.study.several_hospitals import any_hospitals, each_seat
from protocols.study.study import ADJACENCY, party_of
from runtime.page import document, facts, lines, table, text, verdict

# Of a membership attack: the share of outsiders that it may accuse wrongly, in the figures shown.
_FALSE_POSITIVES = 0.01
# Rows shown for a patient of k hospitals.
_MOST_ROWS = 12


@dataclass(frozen=True, kw_only=True)
class Course:
    """What came of a study: when it was released (ISO), how many queries were asked and answered, why it ended."""

    released: str
    asked: int
    answered: int
    ended: str


@dataclass(frozen=True, kw_only=True)
class Hospital:
    """The hospital that is to approve: its name, its name for the data set, and what its lifetime caps say."""

    name: str
    data_set: str
    lifetime: tuple[str, ...]


def officers_file(study: DeployedStudy, *, asked: Course | None = None, hospital: Hospital | None = None) -> str:
    """The file as a page. asked: of a study that was released; hospital: the one that is to approve it."""
    about, whose, decision = protection_of(study), "for the release", "Decision, conditions, name, date, signature"
    if hospital is not None:
        whose = f"for {hospital.name}, before it approves"
        decision = f"Decision of {hospital.name}: approve, approve with conditions, or refuse; name, date, signature"
    filled = {
        "verdict": _verdict(study, before=asked is None),
        "described": facts(_described(study, asked, hospital)),
        "recipients": _recipients(study),
        "leaves": text(leaves(about)),
        "withdrawal": lines(withdrawal(about)),
        "unit": f"{text(about.unit_in_words)}; {ADJACENCY}",
        "view": text(about.view_in_words),
        "strength": _strength(study, hospital),
        "not_covered": lines(not_covered_by_release(about)),
        "keys": lines(keys(about)),
        "decision": text(decision),
    }
    written = (files("runtime") / "officers_file.html").read_text(encoding="utf-8")
    blanks = re.sub(r"^\[ \] (.*)$", r'<p class="blank"><strong>To be written:</strong> \1.</p>', written, flags=re.M)
    kind = f"data protection, {whose}"
    return document(title=f"Officer's file: {study.name}", kind=kind, body=Template(blanks).substitute(filled))


def _verdict(study: DeployedStudy, *, before: bool) -> str:
    about = protection_of(study)
    several = [each.figure for each in any_hospitals(study)]
    short = in_short(about, hospitals=[each.figure for each in each_seat(study)], known_to=several)
    points = short["points"]
    wanted = ("Who is protected", "From whom", "Who is not protected")
    decide = "whether to take part" if before else "whether what was done was lawful, and what follows from it"
    return verdict(
        short["verdict"],
        [
            *((f"{name}:", points[name]) for name in wanted),
            ("For you to decide:", f"{decide}. The boxes below ask for it."),
        ],
        tone="warn",
    )


def _described(study: DeployedStudy, asked: Course | None, hospital: Hospital | None) -> list[tuple[str, object]]:
    terms, level = study.terms, study.confidentiality
    columns = ", ".join(each.column for each in terms.features) or f"inputs of shape {terms.input_shape}, no columns"
    guardian = [("Guardian (second server)", level.second_server)] if level.second_server else []
    parties = list(dict.fromkeys(party_of(seat.party) for seat in study.roster))
    named: list[tuple[str, object]] = [
        ("Study", f"{study.name}, digest {study.digest.hex()}"),
        ("Purpose, as the study states it", terms.task),
        ("Asks and adds up", level.who_asks(terms.coordinator)),
        *guardian,
        ("Hospitals", f"{len(parties)}: {', '.join(map(study.named, parties))}"),
        ("Columns that are used", columns),
        *([("What is predicted", f"{terms.label}: {terms.predicted}".removeprefix(": "))] if terms.labels else []),
        ("Questions", f"up to {study.query_limit} about {terms.pool_size} public records"),
        ("Last day on which a node answers", terms.ends),
    ]
    if hospital is not None:
        named.append(("Data set here", hospital.data_set))
    if asked is not None:
        named += [
            ("Released", asked.released),
            (
                "Came of it",
                f"{counted(asked.answered, 'answer')} to {counted(asked.asked, 'question')}; "
                f"it ended because {asked.ended}",
            ),
        ]
    return named


def _recipients(study: DeployedStudy) -> str:
    if study.confidentiality.asked_by:
        return ""
    about = protection_of(study)
    saw = [tuple(each.values()) for each in who_saw_what(about, coordinator=study.terms.coordinator)]
    head = ("who", "sees", "protection of patients from them")
    keep = [tuple(each.values()) for each in kept(about)]
    return "\n".join([
        table("Recipients at this level of confidentiality", head, saw, words=(0, 1, 2)),
        table("What is kept", ("who", "keeps"), keep, words=(0, 1)),
        f"<p>{text(BYTES)}</p>",
    ])  # fmt: skip


def _strength(study: DeployedStudy, hospital: Hospital | None) -> str:
    rows = [
        _strength_row(study.named(seat.party), each.figure)
        for seat, each in zip(study.roster, each_seat(study), strict=True)
        if hospital is None or party_of(seat.party) == hospital.name
    ]
    every = any_hospitals(study)
    several = [
        _strength_row(f"any {count} hospitals", each.figure)
        for count, each in enumerate(every, 1)
        if count > study.votes.hospitals_per_patient and (count <= _MOST_ROWS or count == len(every))
    ]
    head = ("data of", "epsilon", "delta", "found by any attack", "in words")
    shown = [table("How strong the guarantee is", head, rows, words=(4,))]
    shown += [table("A patient known to several hospitals, at worst", head, several, words=(4,))] if several else []
    if hospital is not None:
        shown += ["<h3>Over all studies of this hospital</h3>", lines(hospital.lifetime)]
    return "\n".join(shown)


def _strength_row(name: str, figure: Figure) -> tuple[str, ...]:
    found = percent_at_most(figure.caught(_FALSE_POSITIVES))
    return (name, at_most(figure.epsilon), at_most(figure.delta), found, strength(figure))
