"""An officer's file: what an assessment under GDPR article 35 asks about a study, filled in where the system knows.

Whatever only people know is a marked blank. The file is no part of what is signed, so that it can be written into.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.claims.coverage import not_covered_by_release
from protocols.claims.in_short import in_short
from protocols.claims.kept import BYTES, kept, keys
from protocols.claims.strength import Figure, percent_at_most, strength
from protocols.claims.who_sees import leaves, who_saw_what
from protocols.claims.withdrawal import withdrawal
from protocols.plural import at_most, counted
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import GuardedLevel
from protocols.study.protection import protection_of
from protocols.study.several_hospitals import any_hospitals, each_seat
from protocols.study.study import ADJACENCY, party_of
from runtime.page import document, facts, lines, table, text, verdict

# Of a membership attack: the share of outsiders that it may accuse wrongly, in the figures shown.
_FALSE_POSITIVES = 0.01
# Rows shown for a patient of k hospitals.
_MOST_ROWS = 12


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What came of a study: when it was released (ISO), how many questions were asked and answered, why it ended."""

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


def officers_file(study: DeployedStudy, *, asked: Asked | None = None, hospital: Hospital | None = None) -> str:
    """The file as a page. asked: of a study that was released; hospital: the one that is to approve it."""
    whose = "for the release" if hospital is None else f"for {hospital.name}, before it approves"
    body = [
        _verdict(study, before=asked is None),
        f'<p class="notice">{text(_NOTICE)}</p>',
        *_described(study, asked, hospital),
        *_necessary(study),
        *_risks(study, hospital),
        *_measures(study),
        *_signed_off(hospital),
    ]
    return document(title=f"Officer's file: {study.name}", kind=f"data protection, {whose}", body="\n".join(body))


_NOTICE = (
    "This file follows article 35(7) of the GDPR. Dashed boxes are for people to fill in: the software does not know. "
    "A browser cannot: open the file in a word processor, or print it. "
    "It is not signed, and what is written into it breaks no signature. It is a draft, and no legal advice."
)


def _verdict(study: DeployedStudy, *, before: bool) -> str:
    about = protection_of(study)
    several = [each.figure for each in any_hospitals(study)]
    short = in_short(about, hospitals=[each.figure for each in each_seat(study)], several=several)
    points = short["points"]
    assert isinstance(points, dict)  # as in_short makes it
    wanted = ("Who is protected", "From whom", "Patients of several hospitals", "Who is not protected")
    decide = "whether to take part" if before else "whether what was done was lawful, and what follows from it"
    return verdict(
        str(short["verdict"]),
        [
            *((f"{name}:", points[name]) for name in wanted),
            ("For you to decide:", f"{decide}. The boxes below ask for it."),
        ],
        tone="warn",
    )


def _described(study: DeployedStudy, asked: Asked | None, hospital: Hospital | None) -> list[str]:
    terms, level = study.terms, study.confidentiality
    columns = ", ".join(each.column for each in terms.features) or f"inputs of shape {terms.input_shape}, no columns"
    guardian = [("Guardian (second server)", level.guardian)] if isinstance(level, GuardedLevel) else []
    parties = list(dict.fromkeys(party_of(seat.party) for seat in study.roster))
    named = [
        ("Study", f"{study.name}, digest {study.digest.hex()}"),
        ("Purpose, as the study states it", terms.task),
        ("Asks and adds up", level.who_asks(terms.coordinator)),
        *guardian,
        ("Hospitals", f"{len(parties)}: {', '.join(parties)}"),
        ("Columns that are used", columns),
        ("What is predicted", f"{terms.label}: {', '.join(terms.class_names)}"),
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
    recipients = [] if level.hides_queries else [
        table(
            "Recipients at this level of confidentiality",
            ("who", "sees", "protection of patients from them"),
            [tuple(each.values()) for each in who_saw_what(protection_of(study), coordinator=terms.coordinator)],
            words=(0, 1, 2),
        ),
        table(
            "What is kept",
            ("who", "keeps"),
            [tuple(each.values()) for each in kept(protection_of(study))],
            words=(0, 1),
        ),
        f"<p>{text(BYTES)}</p>",
    ]  # fmt: skip
    return [
        "<h2>1. What is processed, and what for (article 35(7)(a))</h2>",
        facts(named),
        *recipients,
        blank("Controllers (article 26), processors (article 28): who is which, and by which contract"),
        blank("Purpose beyond that sentence; who will use the student, and for what"),
        blank("Numbers of records and patients at each hospital, as it chooses to state; how they were chosen"),
        blank("Retention: when each side deletes records, models, ledgers and backups"),
        blank("Transfers outside the EEA, if any"),
    ]


def _necessary(study: DeployedStudy) -> list[str]:
    return [
        "<h2>2. Necessity and proportionality (article 35(7)(b))</h2>",
        f"<p>{text(leaves(protection_of(study)))} The study fixes beforehand how much may be asked; each hospital's "
        "node refuses more.</p>",
        blank("Lawful basis (article 6), and for health data the condition of article 9(2), with national law"),
        blank("Why this purpose needs these data, and why less would not do"),
        "<h3>Rights of patients, and what withdrawing can and cannot do</h3>",
        lines(withdrawal(protection_of(study))),
        blank("How patients are informed (articles 13 and 14), and how they object (article 21)"),
    ]


def _risks(study: DeployedStudy, hospital: Hospital | None) -> list[str]:
    rows = []
    for seat, each in zip(study.roster, each_seat(study), strict=True):
        if hospital is None or party_of(seat.party) == hospital.name:
            rows.append(_strength_row(seat.party, each.figure))
    every = any_hospitals(study)
    several = [
        _strength_row(f"any {count} hospitals", each.figure)
        for count, each in enumerate(every, 1)
        if count > 1 and (count <= _MOST_ROWS or count == len(every))
    ]
    head = ("data of", "epsilon", "delta", "found by any attack", "in words")
    about = protection_of(study)
    lifetime = [] if hospital is None else ["<h3>Over all studies of this hospital</h3>", lines(hospital.lifetime)]
    return [
        "<h2>3. Risks to patients (article 35(7)(c))</h2>",
        f"<p>The unit is {text(about.unit_in_words)}; {ADJACENCY}: its data are replaced by any other. The figures "
        f"hold against anyone who sees {text(about.view_in_words)}, over the whole study and for ever, in the worst "
        "case. “Found by any attack” is the largest share of members that a membership attack of any kind can name "
        "while it wrongly accuses one outsider in a hundred.</p>",
        table("How strong the guarantee is", head, rows, words=(4,)),
        table("A patient known to several hospitals, at worst", head, several, words=(4,)) if several else "",
        *lifetime,
        "<p>Attacks that were really tried, and what they found, are in the simulator's report of a similar study: "
        "none can be run on a release without private records.</p>",
        "<h3>What these figures do not cover</h3>",
        lines(not_covered_by_release(about)),
        blank("Severity and likelihood of what remains, for these patients; small groups among them"),
    ]


def _strength_row(name: str, figure: Figure) -> tuple[str, ...]:
    found = percent_at_most(figure.caught(_FALSE_POSITIVES))
    return (name, at_most(figure.epsilon), at_most(figure.delta), found, strength(figure))


def _measures(study: DeployedStudy) -> list[str]:
    return [
        "<h2>4. Measures (article 35(7)(d))</h2>",
        lines(
            [
                "Differential privacy: noise on every count, and a ledger at each hospital that reserves a batch's "
                "cost before a vote leaves, and refuses what would pass the cap.",
                "Traffic is encrypted and both ends are certified; every message is signed and kept in two audit logs.",
                "A release is signed and can be verified by anybody: conclave-coordinator verify FOLDER, or with "
                "OpenSSF Model Signing.",
            ]
        ),
        "<h3>Who holds which keys</h3>",
        lines(keys(protection_of(study))),
        blank("Organisational measures: who operates what, access, backups, breaches (article 33)"),
    ]


def _signed_off(hospital: Hospital | None) -> list[str]:
    return [
        "<h2>5. Advice and decision</h2>",
        blank("Advice of the data protection officer (article 35(2)); views of patients (article 35(9))"),
        blank("Whether the supervisory authority must be consulted beforehand (article 36), and why"),
        blank(
            "Decision, conditions, name, date, signature"
            if hospital is None
            else f"Decision of {hospital.name}: approve, approve with conditions, or refuse; name, date, signature"
        ),
        blank("Date of the next review"),
    ]


def blank(what: str) -> str:
    """A place where a person must write."""
    return f'<p class="blank"><strong>To be written:</strong> {text(what)}.</p>'
