"""A grammar of short notes of an emergency department: what is found, and how a hospital writes it down.

A note's class decides only how likely each finding is. A finding that is there is mentioned more often than one that
is not; who writes, with which abbreviations, errors and headings, and all other sections do not depend on the class. So
the best possible rule is known: tests/unit/benchmarks/test_notes.py.

The `notes` data set: short notes of emergency departments, written by a grammar; to which group does a patient go?

No file is needed. Six hospitals write in their own ways (headings, abbreviations, negations, spelling). A word alone
says little: a finding may be denied, or of another year.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from jaxtyping import Float64, Int8, Int64
from numpy import ndarray

from protocols.features.texts import USUAL_VECTORS
from protocols.study.features import MISSING
from simulations.datasets.columns import coded, text_column
from simulations.datasets.dataset import Dataset, DatasetRequest

CLASSES: Final = ("cardiac", "respiratory", "abdominal", "urinary", "neurological", "musculoskeletal")
# A finding that is there, and one that is not, is mentioned with this probability.
MENTIONED: Final = (0.1, 0.95)

# Each finding: as it is written in full, in other words, and short; and, in hundredths, how likely in each class.
_FINDINGS: Final[tuple[tuple[str, tuple[int, ...]], ...]] = (
    ("chest pain|pain in the chest|CP", (85, 45, 8, 2, 3, 13)),
    ("shortness of breath|breathlessness|SOB", (65, 90, 6, 3, 4, 5)),
    ("cough|coughing|cgh", (8, 80, 5, 3, 3, 3)),
    ("wheeze|wheezing|whz", (5, 55, 3, 1, 2, 2)),
    ("palpitations|racing heart|palps", (60, 6, 3, 2, 8, 3)),
    ("ankle swelling|swollen ankles|ankle oed", (50, 6, 3, 6, 2, 13)),
    ("sweating|diaphoresis|diaph", (50, 13, 13, 13, 6, 3)),
    ("fever|raised temperature|pyrexia", (5, 65, 45, 60, 8, 4)),
    ("chills|shivering|rigors", (3, 45, 10, 55, 4, 2)),
    ("nausea|feeling sick|N+", (13, 6, 75, 45, 45, 4)),
    ("vomiting|being sick|V+", (6, 5, 70, 40, 45, 2)),
    ("abdominal pain|belly pain|abdo pain", (6, 4, 90, 55, 2, 5)),
    ("diarrhoea|loose stools|D+", (2, 3, 55, 4, 2, 2)),
    ("constipation|no bowel movement|BNO", (3, 2, 45, 5, 4, 3)),
    ("pain on passing urine|burning urine|dysuria", (2, 2, 8, 80, 2, 3)),
    ("urinary frequency|passing urine often|freq", (3, 2, 5, 70, 4, 3)),
    ("flank pain|pain in the side|loin pain", (2, 3, 40, 60, 1, 40)),
    ("headache|pain in the head|HA", (6, 10, 8, 8, 80, 13)),
    ("dizziness|feeling faint|dizzy", (45, 6, 10, 8, 70, 6)),
    ("weakness of an arm|weak arm|arm wkns", (6, 2, 1, 1, 55, 45)),
    ("numbness|pins and needles|numb", (5, 2, 1, 1, 55, 50)),
    ("blurred vision|double vision|vis dist", (3, 1, 2, 2, 50, 2)),
    ("back pain|sore back|LBP", (5, 4, 13, 55, 6, 70)),
    ("joint pain|painful joints|arthralgia", (1, 4, 3, 3, 3, 70)),
    ("a fall|tripping at home|mech fall", (5, 3, 3, 5, 45, 60)),
    ("neck stiffness|stiff neck|neck stiff", (2, 3, 1, 2, 40, 45)),
    ("tiredness|fatigue|TATT", (55, 55, 50, 45, 55, 13)),
    ("loss of appetite|poor appetite|off food", (8, 40, 65, 40, 8, 4)),
)
FORMS: Final = tuple(tuple(forms.split("|")) for forms, _ in _FINDINGS)
# [findings, classes]: how likely a finding is there.
LIKELY: Final[Float64[ndarray, "findings classes"]] = np.array([shares for _, shares in _FINDINGS]) / 100

_HISTORY: Final = "hypertension|type 2 diabetes|asthma|a stroke|a heart attack|kidney stones|gout|migraine".split("|")
_HISTORY_SHORT: Final = "HTN|T2DM|asthma|CVA|MI|renal calculi|gout|migraine".split("|")
_DRUGS: Final = "amlodipine|metformin|salbutamol|aspirin|ramipril|omeprazole|paracetamol|no regular drugs".split("|")
_PLANS: Final = (
    "bloods sent|ECG done|analgesia given|IV fluids started|imaging requested|observe|review in the morning|"
    "discussed with senior|admit under the medical team|home with advice"
).split("|")
_RELATIVES: Final = ("mother", "father", "brother", "sister")


@dataclass(frozen=True)
class Habits:
    """How one hospital writes. headings: of complaint, history, past, drugs, examination and plan, in the order of its
    notes; short, errors: how often a finding is abbreviated and a word misspelt; no: how it says that findings are not
    there; letters: what it does to a finished note."""

    name: str
    headings: Mapping[str, str]
    short: float
    errors: float
    no: tuple[str, ...]
    between: str = "\n"
    letters: Callable[[str], str] = field(default=str)


def _american(note: str) -> str:
    return note.replace("diarrhoea", "diarrhea").replace("oed", "ed").replace("paracetamol", "acetaminophen")


HOSPITALS: Final = (
    Habits(
        "North",
        {"complaint": "Presenting complaint: ", "history": "History: ", "past": "Past history: ", "drugs": "Drugs: ",
         "exam": "Examination: ", "plan": "Plan: "},
        0.1, 0.01, ("No {}.", "Denies {}.", "There is no {}."),
    ),
    Habits(
        "South",
        {"complaint": "PC ", "history": "HPC ", "past": "PMH ", "drugs": "DH ", "exam": "O/E ", "plan": "P "},
        0.8, 0.03, ("nil {}.", "no {}.", "-ve for {}."),
        " ",
    ),
    Habits(
        "East",
        {"complaint": "CC: ", "history": "HPI: ", "exam": "PE: ", "past": "PMHX: ", "plan": "A/P: "},
        0.6, 0.02, ("denies {}.", "w/o {}.", "negative for {}."),
        "\n", str.upper,
    ),
    Habits(
        "West",
        {"history": "", "complaint": "Came in because of ", "past": "Known with ", "drugs": "Takes ", "plan": "We "},
        0.05, 0.05, ("The patient has not had {}.", "Patient does not report {}.", "Never had {} with this."),
        " ",
    ),
    Habits(
        "Central",
        {"plan": "#plan ", "complaint": "#c ", "history": "#s ", "exam": "#o "},
        0.5, 0.08, ("no {}.", "neg: {}.", "not {}."),
        "\n", str.lower,
    ),
    Habits(
        "Lakeside",
        {"complaint": "Reason for visit - ", "drugs": "Medications - ", "past": "Medical history - ",
         "history": "Present illness - ", "plan": "Disposition - "},
        0.3, 0.02, ("Patient denies {}.", "No complaints of {}.", "Without {}."),
        "\n", _american,
    ),
)  # fmt: skip


def draw_mentions(labels: Int64[ndarray, " notes"], rng: np.random.Generator) -> Int8[ndarray, "notes findings"]:
    """What each note of these classes says of each finding: 1 it is there, -1 it is not, 0 nothing."""
    there = rng.random((len(labels), len(FORMS))) < LIKELY.T[labels]
    said = rng.random(there.shape) < np.where(there, MENTIONED[1], MENTIONED[0])
    return np.where(said, np.where(there, 1, -1), 0).astype(np.int8)


def write_note(mentions: Int8[ndarray, " findings"], habits: Habits, rng: np.random.Generator) -> str:
    """The note that says this, as this hospital would write it."""
    there, gone = (rng.permutation(np.flatnonzero(mentions == said)).tolist() for said in (1, -1))

    def named(findings: Sequence[int]) -> list[str]:
        return [_form(FORMS[each], habits, rng) for each in findings]

    sections = {
        "complaint": named(there[:1])[0] if there else "feels unwell",
        "history": _history(named(there), named(gone), habits, rng),
        "past": _past(named([int(rng.integers(len(FORMS)))])[0], habits, rng),
        "drugs": ", ".join(_some(_DRUGS, rng)),
        "exam": f"BP {rng.integers(100, 170)}/{rng.integers(55, 100)}, HR {rng.integers(55, 120)}, "
        f"RR {rng.integers(12, 26)}, T {rng.integers(361, 389) / 10:.1f}",
        "plan": ", ".join(_some(_PLANS, rng)),
    }
    written = habits.between.join(f"{heading}{sections[name]}" for name, heading in habits.headings.items())
    return habits.letters(" ".join(_misspelt(word, habits, rng) for word in written.split(" ")))


def _history(there: list[str], gone: list[str], habits: Habits, rng: np.random.Generator) -> str:
    """Who, since when, what there is, and what there is not; several findings may share one negation."""
    days, age = rng.integers(1, 15), rng.integers(18, 95)
    who = (f"{age}{'MF'[rng.integers(2)]}", f"{age} year old", f"{age} yo")[rng.integers(3)]
    parts = [f"{who} with {_listed(there, 'and')} for {days} days." if there else f"{who}, unwell for {days} days."]
    while gone:
        size = int(rng.integers(1, 4))
        parts.append(_one(habits.no, rng).format(_listed(gone[:size], "or")))
        gone = gone[size:]
    return " ".join([parts[0], *(parts[1:][at] for at in rng.permutation(len(parts) - 1))])


def _past(finding: str, habits: Habits, rng: np.random.Generator) -> str:
    """Old diseases, a relative's, and a finding of years ago: none of them says anything about the class."""
    known = _HISTORY_SHORT if rng.random() < habits.short else _HISTORY
    said = [", ".join(_some(known, rng)), f"{_one(_RELATIVES, rng)} had {_one(known, rng)}"]
    if rng.random() < 0.5:
        said.append(f"{finding} in {rng.integers(2005, 2024)}, resolved")
    return ", ".join(said)


def _form(forms: Sequence[str], habits: Habits, rng: np.random.Generator) -> str:
    return forms[2] if rng.random() < habits.short else forms[int(rng.integers(2))]


def _misspelt(word: str, habits: Habits, rng: np.random.Generator) -> str:
    """The word, perhaps with one letter left out, doubled, or exchanged with the next."""
    if len(word) < 5 or rng.random() >= habits.errors:
        return word
    at, kind = int(rng.integers(1, len(word) - 1)), int(rng.integers(3))
    middle = ("", word[at] * 2, word[at + 1] + word[at])[kind]
    return word[:at] + middle + word[at + 1 + (kind == 2) :]


def _listed(items: list[str], last: str) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def _some(items: Sequence[str], rng: np.random.Generator) -> list[str]:
    return [items[at] for at in rng.choice(len(items), int(rng.integers(1, 4)), replace=False)]


def _one(items: Sequence[str], rng: np.random.Generator) -> str:
    return items[int(rng.integers(len(items)))]


SIZES = {"private": 8_000, "public": 1_500, "test": 1_000}
COLUMNS = (text_column("note", USUAL_VECTORS),)


@dataclass(frozen=True, eq=False)
class Notes:
    """labels: indices into CLASSES; sites: into HOSPITALS; mentions: what each note says of each finding."""

    texts: list[str]
    labels: Int64[ndarray, " notes"]
    sites: Int64[ndarray, " notes"]
    mentions: Int8[ndarray, "notes findings"]


def draw_notes(count: int, *, seed: int, part: str) -> Notes:
    """Notes of the random stream of (seed, part); classes and hospitals are equally likely."""
    rng = np.random.default_rng([seed, *f"notes {part}".encode()])
    labels, sites = rng.integers(len(CLASSES), size=count), rng.integers(len(HOSPITALS), size=count)
    mentions = draw_mentions(labels, rng)
    texts = [write_note(said, HOSPITALS[site], rng) for said, site in zip(mentions, sites, strict=True)]
    return Notes(texts, labels, sites, mentions)


def load(request: DatasetRequest) -> Dataset:
    """Features f32 [N, 2048] of the notes. Each part is drawn from its own random stream, in any size."""
    asked = {"private": request.private_size, "public": request.public_size, "test": request.test_size}
    notes = {part: draw_notes(size or SIZES[part], seed=request.seed, part=part) for part, size in asked.items()}
    inputs = {
        part: coded({"note": each.texts}, COLUMNS, missing=MISSING, where=f"notes {part}")
        for part, each in notes.items()
    }
    return Dataset(
        name="notes",
        kind="table",
        class_names=CLASSES,
        private_inputs=inputs["private"],
        private_labels=notes["private"].labels,
        public_inputs=inputs["public"],
        public_labels=notes["public"].labels,
        test_inputs=inputs["test"],
        test_labels=notes["test"].labels,
        private_sites=notes["private"].sites,
        site_names=tuple(each.name for each in HOSPITALS),
        columns=COLUMNS,
        test_names={"site": np.array([each.name for each in HOSPITALS])[notes["test"].sites]},
        about=f"Notes of {len(HOSPITALS)} hospitals (sites), written by a grammar; each is a patient of its own.",
    )
