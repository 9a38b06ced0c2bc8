"""The sentences of a privacy statement in short, and of the screen before an approval, by language: one table.

Braces stand for figures and names. The English of what differs by level, or by what votes, is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocols.claims.coverage import DECLARED, EACH_HAS_ONE, UP_TO
from protocols.claims.protection import Protection
from protocols.claims.strength import ACCUSED, ACCUSES_NOBODY, ATTACK, Figure, attack, percent_at_most
from protocols.claims.who_sees import not_protected_from, who_sees_votes
from protocols.plural import at_most

ENGLISH: Final = "en"
# What each language calls itself, beside English.
LANGUAGES: Final = {"de": "Deutsch"}
_GERMAN_SUMS: Final = (
    "Ein Server, der vom Protokoll abweicht, kann die Summen verändern. Ein Krankenhaus beweist, dass seine Summe von "
    "so vielen Datensätzen stammen könnte, wie es angibt, oder nicht länger ist; nicht, dass sie wahr sind."
)
_GERMAN_TOGETHER: Final = (
    "Vor {dative} und der zweiten Stelle zusammen ist niemand geschützt: Legen beide ihr Wissen zusammen, sehen sie "
    "{every}"
)
_GERMAN_ALONE: Final = "Gegen einen der Server allein gelten die Zahlen, solange die Verschlüsselung hält."
_GERMAN_SECOND: Final = (
    "niemand sieht eine Stimme, solange {asks} und die zweite Stelle, {guardian}, ihr Wissen nicht zusammenlegen; "
    "beide "
    "fügen Rauschen hinzu"
)
# By a level, or by a unit or view and what votes; their English is in the tables of levels and votes.
_GERMAN: Final = {
    "sees clear": "{asks} sieht {every}, zieht das Rauschen, und in beidem muss man ihr vertrauen",
    "sees secure_sum": "{asks} sieht verrauschte Summen aller Stimmen und keine einzelne Stimme, solange höchstens "
    "{parties} ihr Wissen dorthin geben; jedes Krankenhaus fügt einen Teil des Rauschens hinzu",
    "sees two_server": _GERMAN_SECOND,
    "sees hidden_queries": _GERMAN_SECOND,
    "unprotected clear": "Vor {dative} ist niemand geschützt: Sie sieht {every} unverschlüsselt und zieht das "
    "Rauschen, "
    "und in beidem muss man ihr vertrauen. Diese Zahlen schützen niemanden vor ihrem Betreiber, und vor niemandem, der "
    "bei ihr einbricht.",
    "unprotected secure_sum": "Niemand ist geschützt, wenn {asks} und mehr als {parties} ihr Wissen zusammenlegen: Was "
    "sie zusammen über Stimmen und Rauschen wissen, schwächt diese Zahlen oder hebt sie auf. Ein Krankenhaus kann "
    "beliebige Werte zur Summe geben: Nichts begrenzt es auf {most}.",
    "unprotected two_server": f"{_GERMAN_TOGETHER}. {{departs}} {_GERMAN_ALONE}",
    "unprotected hidden_queries": f"{_GERMAN_TOGETHER} und die Modelle, die geantwortet haben. {{departs}} Jeder der "
    "beiden kann ein Modell auch anderes fragen als die Anfrage: Heraus kommt weiterhin eine Stimme, mehr erfährt er "
    f"nicht. {_GERMAN_ALONE}",
    "every teacher": "jede Stimme", "most teacher": "eine Stimme",
    "departs teacher": "Ein Server, der vom Protokoll abweicht, kann in einer Anfrage sein Rauschen wählen, je Versuch "
    "mit Wahrscheinlichkeit 1/4 unbemerkt: mit 58 % in mindestens einer, ehe drei Fehlschläge die Studie beenden. Mit "
    "Hilfe eines Krankenhauses kann er unbemerkt Antworten umkehren, allein nicht. Er erfährt höchstens eine "
    "Funktion der verrauschten Zählungen: Antworten, Ablehnungen, ein Bit je Durchgang. Das kostet bis zu Epsilon "
    "{epsilon}; die Zahlen gelten gegen Server, die sich an das Protokoll halten.",
    "every record": "die Summe der Stimmen der Datensätze jedes Krankenhauses",
    "most record": "eine Stimme je Datensatz", "departs record": _GERMAN_SUMS,
    "every count": "die Zählungen jedes Krankenhauses", "most count": "einen Datensatz je Spalte",
    "departs count": _GERMAN_SUMS,
    "record teacher": "ein Datensatz eines Krankenhauses, aus dem ein einziges Modell lernt und der eine Stimme bewegt",
    "party teacher": "alle Daten eines Krankenhauses, die die Stimmen aller seiner Modelle bewegen",
    "record record": "ein Datensatz eines Krankenhauses, der in der ganzen Studie einmal abstimmt",
    "patient record": "alle Datensätze eines Patienten in einem Krankenhaus, die zusammen höchstens eine Stimme haben, "
    "einmal in der ganzen Studie",
    "party record": "alle Daten eines Krankenhauses, die zusammen höchstens eine Stimme haben, einmal in der ganzen "
    "Studie",
    "record count": "ein Datensatz eines Krankenhauses, der in der ganzen Studie einmal gezählt wird",
    "patient count": "alle Datensätze eines Patienten in einem Krankenhaus, der in der ganzen Studie einmal gezählt "
    "wird",
    "label teacher": "die veröffentlichten Antworten, welche Anfragen keine bekamen, und alles, was daraus gemacht "
    "wird",
    "histogram teacher": "die verrauschten Zählungen der Stimmen hinter jeder Antwort und alles, was daraus gemacht "
    "wird",
    "histogram record": "die verrauschten Summen der Stimmen aller Datensätze und alles, was daraus gemacht wird",
    "histogram count": "die verrauschten Zählungen und alles, was daraus gemacht wird",
}  # fmt: skip
_SENTENCES: Final[Mapping[str, tuple[str, str]]] = {
    "point": (".,", ",."),
    "who": ("Who is protected", "Wer ist geschützt"),
    "whom": ("From whom", "Vor wem"),
    "how": ("How strong", "Wie stark"),
    "not": ("Who is not protected", "Wer ist nicht geschützt"),
    "open": ("What is not checked, and what to refuse", "Was ungeprüft bleibt, und was abzulehnen ist"),
    "strong": ("strong", "stark"),
    "moderate": ("moderate", "mäßig"),
    "limited": ("limited", "begrenzt"),
    "weak": ("weak", "schwach"),
    "record": ("one record of one hospital", "einen Datensatz eines Krankenhauses"),
    "patient": ("one patient at one hospital", "einen Patienten in einem Krankenhaus"),
    "party": ("one hospital's data", "die Daten eines Krankenhauses"),
    "protection": ("{Rating} protection of {whose}: {guesses}.", "{Rating}er Schutz für {whose}: {guesses}."),
    "useless": ("No useful guarantee for {whose}: {guesses}.", "Kein brauchbarer Schutz für {whose}: {guesses}."),
    "no epsilon": (
        "No useful guarantee for {whose}: there is no epsilon at delta {delta}.",
        "Kein brauchbarer Schutz für {whose}: Zu Delta {delta} gibt es kein Epsilon.",
    ),
    "guesses": (
        "whoever thinks two versions of the data equally likely then picks the true one at most {share} of the time (a "
        "coin: 50 %)",
        "wer zwei Fassungen dieser Daten für gleich wahrscheinlich hält, wählt danach in höchstens {share} der Fälle "
        "die wahre (Münze: 50 %)",
    ),
    "up to": (
        UP_TO,
        "Ein Patient darf in bis zu {hospitals} der Krankenhäuser bekannt sein: Jede Zahl gilt für den Patienten, mit "
        "allem, was diese von ihm haben. Nichts erzwingt, dass {hospitals} genügen: Wer in mehr Häusern bekannt ist, "
        "ist "
        "weniger geschützt.",
    ),
    "each has one": (
        EACH_HAS_ONE,
        "Geschützt ist ein Datensatz; das gilt also für einen Patienten mit je einem Datensatz dort.",
    ),
    "declared": (
        DECLARED,
        "Das setzt voraus, dass jedes Haus richtig angibt, in wie vielen ein Patient bekannt ist, was niemand prüfen "
        "kann: Wen es fälschlich als nur ihm bekannt angibt, der bewegt dort eine ganze Stimme.",
    ),
    "is protected": (
        "{Unit}. Each hospital has its own figure, epsilon {epsilons} (the smaller, the safer); the sentence above "
        "holds for each.",
        "{Unit}. Jedes Krankenhaus hat seine eigene Zahl, Epsilon {epsilons} (je kleiner, desto sicherer); der Satz "
        "oben gilt für jedes.",
    ),
    "range": ("{least} to {most}", "{least} bis {most}"),
    "from whom": (
        "Anyone who sees {view}: the public, the other hospitals, whoever uses the model{within}.",
        "Vor allen, die sehen: {view}. Das sind die Öffentlichkeit, die anderen Krankenhäuser und alle, die das Modell "
        "benutzen{within}.",
    ),
    "within": (", and the coordinator, as far as said below", ", und die Koordination, soweit unten gesagt"),
    "is strong": (
        "An epsilon of {epsilon} is {rating}: {attack}. This holds for ever, whatever anybody knows or finds out "
        "later; "
        "a release cannot be called back, and a further one on the same data adds to it.",
        "Ein Epsilon von {epsilon} gilt als {rating}: {attack}. Das gilt für immer, was auch immer jemand weiß oder "
        "später erfährt; eine Veröffentlichung lässt sich nicht zurückholen, und eine weitere über dieselben Daten "
        "kommt "
        "hinzu.",
    ),
    "attack": (
        ATTACK,
        "wer 50 von 100 Beteiligten richtig benennt, benennt auch {accused} Unbeteiligten zu Unrecht",
    ),
    "nobody accused": (
        ACCUSES_NOBODY,
        "jemand kann 50 von 100 Beteiligten benennen, und niemanden zu Unrecht",
    ),
    "accused": (ACCUSED, "mindestens {number} von {of}"),
    "nothing": ("There is no guarantee.", "Es gibt keine Zusage."),
    "pool": (
        "Nothing protects the people behind the public records that the study finds answers for; they are not the "
        "hospitals' records.",
        "Nichts schützt die Menschen hinter den öffentlichen Datensätzen, zu denen die Studie Antworten sucht; sie "
        "sind nicht die der Krankenhäuser.",
    ),
    "several records": (
        "A patient with several records may be protected only record by record.",
        "Wer mehrere Datensätze hat, ist womöglich nur Datensatz für Datensatz geschützt.",
    ),
    "less": (
        "Patients of several hospitals are protected less.",
        "Wer Patient mehrerer Krankenhäuser ist, ist weniger geschützt.",
    ),
    "known to": (
        "Whoever has data at {count} of them, whichever these are: epsilon {epsilon}, {rating}; a guess is right at "
        "most {share} of the time.",
        "Wer in {count} davon Daten hat, gleich in welchen: Epsilon {epsilon}, {rating}; wer rät, hat in höchstens "
        "{share} der Fälle recht.",
    ),
    "known without": (
        "Whoever has data at {count} of them: no guarantee.",
        "Wer in {count} davon Daten hat: keine Zusage.",
    ),
    "unchecked": (
        "Verifying the folder cannot show that the noise was drawn as stated, that no earlier release was left out, or "
        "that a hospital's records are true and its patients counted as the study means. Nobody outside the project "
        "has reviewed the software. Refuse a folder whose verification fails, a further study of the same data that "
        "does not count this one, and any study whose coordinator you would not trust with what it sees.",
        "Die Prüfung des Ordners zeigt nicht, dass das Rauschen wie angegeben gezogen wurde, dass keine frühere "
        "Veröffentlichung fehlt, dass die Datensätze eines Krankenhauses stimmen und seine Patienten so gezählt sind, "
        "wie die Studie es meint. Niemand außerhalb des Projekts hat die Software begutachtet. Lehnen Sie ab: einen "
        "Ordner, dessen Prüfung scheitert; eine weitere Studie über dieselben Daten, die diese nicht mitzählt; jede "
        "Studie, deren Koordination Sie nicht anvertrauen würden, was sie sieht.",
    ),
    "earlier": (" This counts the earlier releases: {names}.", " Frühere Veröffentlichungen sind mitgezählt: {names}."),
    "brief": ("In short", "Kurz"),
    "brief votes": ("Votes", "Stimmen"),
    "brief cap": ("Your cap", "Ihre Grenze"),
    "brief not": ("Unprotected", "Ungeschützt"),
    "costs": (
        "{study}: epsilon {epsilon} at delta {delta}, for {unit}. {Rating}: {guesses}; {attack}.",
        "{study}: Epsilon {epsilon} bei Delta {delta}, für: {unit}. Schutz: {rating}; {guesses}; {attack}.",
    ),
    "costs all": (
        "{study}: no guarantee at delta {delta}, for {unit}.",
        "{study}: keine Zusage bei Delta {delta}, für: {unit}.",
    ),
    "reserved": (
        "{after} of the cap of epsilon {cap} for a {unit} is then reserved, {before} before",
        "{after} der Grenze von Epsilon {cap} ({unit}) sind dann belegt, vorher {before}",
    ),
    "unit record": ("record", "Datensatz"),
    "unit patient": ("patient", "Patient"),
    "unit party": ("party", "Krankenhaus"),
    "no cap": ("none is set", "keine gesetzt"),
    "approve": ("Approve this study?", "Diese Studie freigeben? (y: ja, n: nein)"),
    "page": ("privacy statement", "Angaben zum Schutz der Patienten"),
    "page title": ("Privacy statement: {study}", "Schutz der Patienten: {study}"),
    "page says": (
        "This page says the same as `privacy.html`.",
        "Eine Übersetzung der Kurzfassung. Maßgeblich sind `privacy.json` und die englische Seite:",
    ),
}  # fmt: skip


def say(language: str, key: str, **values: object) -> str:
    """The sentence of this key in a language of LANGUAGES, or in English, with values in the place of names in braces.
    With `rating` or `unit` given, `Rating` or `Unit` is the same with a capital."""
    for name in ("rating", "unit"):
        if name in values:
            given = str(values[name])
            values[name.capitalize()] = given[:1].upper() + given[1:]
    return _SENTENCES[key][_column(language)].format(**values)


def _column(language: str) -> int:
    return (ENGLISH, *LANGUAGES).index(language)


def unprotected(language: str, study: Protection) -> str:
    """From whom nothing protects at the study's level."""
    if language == ENGLISH:
        return f"Nobody is protected from {not_protected_from(study)}"
    return _german("unprotected", study)


def sees_votes(language: str, study: Protection) -> str:
    """Who sees a vote and who adds the noise."""
    return who_sees_votes(study) if language == ENGLISH else _german("sees", study)


def protected(language: str, study: Protection) -> str:
    """Whose data one epsilon protects."""
    return study.unit_in_words if language == ENGLISH else _GERMAN[f"{study.unit} {study.votes}"]


def seen(language: str, study: Protection) -> str:
    """What the adversary sees, from whom an epsilon protects."""
    return study.view_in_words if language == ENGLISH else _GERMAN[f"{study.view} {study.votes}"]


def known_to_several(language: str, study: Protection) -> str:
    """What an epsilon means for a patient known to several hospitals."""
    if study.hospitals == 1:
        return say(language, "less")
    keys = ["up to", *(["each has one"] if study.unit == "record" else []), *(["declared"] if study.declared else [])]
    return " ".join(say(language, key, hospitals=study.hospitals) for key in keys)


def _german(key: str, study: Protection) -> str:
    asks, dative = f"das Krankenhaus {study.asks}", f"dem Krankenhaus {study.asks}"
    if study.at.public:
        asks, dative = "die Koordination", "der Koordination"
    names = {
        "asks": asks, "dative": dative, "guardian": study.guardian,
        "parties": f"{study.colluders} Krankenh{'aus' if study.colluders == 1 else 'äuser'}",
        "epsilon": number("de", at_most(study.counts_epsilon)),
    }  # fmt: skip
    said = {name: _GERMAN[f"{name} {study.votes}"].format(**names) for name in ("every", "most", "departs")}
    return _GERMAN[f"{key} {study.level}"].format(**names, **said)


def guesses(language: str, figure: Figure) -> str:
    """How many guesses at a unit's data are right at most, as a main clause."""
    return say(language, "guesses", share=number(language, percent_at_most(figure.guessed)))


def attacked(language: str, figure: Figure) -> str:
    """`attack` of protocols/claims/strength.py in a language."""
    some, nobody, accused = (_SENTENCES[key][_column(language)] for key in ("attack", "nobody accused", "accused"))
    return attack(figure, sentences=(some, nobody, accused), number=lambda each: number(language, each))


def number(language: str, figure: str) -> str:
    """A figure as English texts write it, as this language does."""
    return figure.translate(str.maketrans(".,", say(language, "point")))
