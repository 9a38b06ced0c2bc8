"""Which of a hospital's columns may be one of the study's, and whether its numbers are in another unit.

Names alone mislead (max_rate is not Alter): a column is named only where its values fit, too. The table of names is
small: what clinical exports of six languages call the commonest columns.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import expm1, inf
from typing import Final

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from party.data.mapping import Form, plain_number
from protocols.study.features import read_numbers
from protocols.study.terms import Feature


@dataclass(frozen=True)
class Concept:
    """Names of one thing, without signs and in lower case; factors: what takes a number in another unit to the usual
    one, or back, each with its words."""

    names: frozenset[str]
    factors: Mapping[float, str]


def _concept(names: str, **factors: float) -> Concept:
    said = {factor: words.replace("_", " ").replace(" per ", "/") for words, factor in factors.items()}
    return Concept(frozenset(names.split()), said)


CONCEPTS: Final = (
    _concept("age alter lebensalter edad eta leeftijd ageyears ageatvisit ageatadmission", months=12.0, days=365.25),
    _concept("sex gender geschlecht sexe sexo genere sesso geslacht genre"),
    _concept("chol cholesterol cholesterin cholesterinwert cholesterolemie colesterol colesterolo totalcholesterol "
             "gesamtcholesterin serumcholesterol tc", mmol_per_l_and_mg_per_dl=38.67),
    _concept("glucose glukose blutzucker bz glycemie glucemia glicemia bloedsuiker bloodsugar fbs nuechternblutzucker",
             mmol_per_l_and_mg_per_dl=18.016),
    _concept("creatinine kreatinin creat crea creatinina creatininemie serumcreatinine",
             umol_per_l_and_mg_per_dl=88.4),
    _concept("hemoglobin haemoglobin hb hgb hamoglobin hemoglobine hemoglobina emoglobina",
             g_per_l_and_g_per_dl=10.0, mmol_per_l_and_g_per_dl=1.611),
    _concept("urea bun harnstoff uree azotemie ureum", mmol_per_l_and_mg_per_dl=6.006, mmol_and_mg_of_n=2.801),
    _concept("bilirubin bilirubine bilirubina totalbilirubin gesamtbilirubin", umol_per_l_and_mg_per_dl=17.1),
    _concept("bloodpressure trestbps sbp systolic systolicbp rr rrsys blutdruck pas tensionarterielle "
             "pressionearteriosa presionarterial bloeddruk restingbp", kpa_and_mmhg=7.501, cmhg_and_mmhg=10.0),
    _concept("heartrate thalach maxrate maxheartrate hr hrmax pulse puls herzfrequenz maxhf maxherzfrequenz "
             "maximalpuls frequencecardiaque frequencemax fc fcmax frecuenciacardiaca frequenzacardiaca hartslag"),
    _concept("weight gewicht poids peso korpergewicht bodyweight kg", lb_and_kg=2.2046),
    _concept("height grosse taille altura altezza lengte korpergrosse statura cm", m_and_cm=100.0, inches_and_cm=2.54),
    _concept("bmi bodymassindex imc"),
    _concept("temperature temp temperatur temperatura koerpertemperatur korpertemperatur"),
    _concept("oldpeak stdepression stsenkung stsenkungubung sousdecalagest depresionst sottoslivellamentost",
             mm_and_mv=10.0),
    _concept("cp chestpain brustschmerz angina douleurthoracique dolortoracico doloretoracico anginatype"),
    _concept("exang exerciseangina belastungsangina angordeffort"),
    _concept("smoker smoking raucher rauchen fumeur tabac fumador fumatore roker"),
    _concept("diabetes diabetic diabetiker diabete diab"),
    _concept("sodium natrium na sodio"), _concept("potassium kalium k potasio potassio"),
    _concept("crp creactiveprotein creaktivesprotein proteinec", mg_per_l_and_mg_per_dl=10.0),
    _concept("leukocytes wbc leukozyten leucocytes leucocitos leucociti leukos"),
    _concept("platelets plt thrombozyten plaquettes plaquetas piastrine thrombos"),
    _concept("lactate laktat lactato lattato", mmol_per_l_and_mg_per_dl=9.008),
    _concept("spo2 oxygensaturation sattigung sauerstoffsattigung saturation saturacion"),
    _concept("diagnosis diagnose label side ill outcome diagnostic diagnostico khk chd cad disease krankheit maladie "
             "befund"),
)  # fmt: skip
# How alike two names are at least, by difflib's ratio, that no table knows; the share of values that must fit.
_ALIKE, _FITS = 0.75, 0.9
# How many scales a median may lie from the study's centre; how far a factor is from a known one; what is asked about.
_SCALES, _NEAR, _ASKED = 3.0, 0.3, 2.0
_FORMS: Final = (Form(), Form(decimal=","), Form(decimal=",", thousands="."), Form(decimal=".", thousands=","))

# Words for the same thing, in lower case: of the sexes, and of yes and no. A digit is never one of them.
_SAME: Final = (
    frozenset({"male", "m", "man", "männlich", "maennlich", "mann", "homme", "masculin", "h", "hombre", "uomo"}),
    frozenset({"female", "f", "w", "woman", "weiblich", "frau", "femme", "féminin", "feminin", "mujer", "donna"}),
    frozenset({"yes", "y", "true", "t", "ja", "j", "oui", "o", "si", "sí", "positive", "pos", "+", "present"}),
    frozenset({"no", "n", "false", "f", "nein", "non", "negative", "neg", "-", "absent"}),
)
# A unit or a remark behind a name: "Cholesterin [mmol/l]", "Chol mg/dL", "Alter (Jahre)".
_REMARK: Final = re.compile(r"\s*[\[(].*[\])]|\s+\S+/\S+$", re.ASCII)
_WHOLE: Final = re.compile(r"([+-]?\d+)[.,]0+", re.ASCII)


def bare(name: str) -> str:
    """A name without case, accents, blanks and signs."""
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in decomposed if letter.isalnum())


def concept_of(name: str) -> Concept | None:
    """What a column's name means, without a unit or a remark, if the table knows it."""
    said = {bare(name), bare(_REMARK.sub("", name))}
    return next((each for each in CONCEPTS if said & each.names), None)


def columns_alike(column: str, header: Collection[str]) -> list[str]:
    """Up to three names that are written alike, for a person to choose from."""
    bares = {bare(name): name for name in header}
    return [bares[each] for each in difflib.get_close_matches(bare(column), bares, n=3, cutoff=_ALIKE)]


def candidates(
    column: str,
    feature: Feature | None,
    names: Sequence[str],
    free: Mapping[str, Sequence[str]],
    *,
    absent: Collection[str],
) -> list[str]:
    """Those of the hospital's free columns that a study's column may be: another word for the same or a name that is
    written alike, and values that fit.

    feature: None for the label; names: its categories or classes; free: the values of each; absent: texts for no value.
    """
    known, written = concept_of(column), set(columns_alike(column, free))
    found = []
    for own, texts in free.items():
        same = known is not None and concept_of(own) is known
        if (same or own in written) and _fits(feature, names, texts, absent=absent, known=known if same else None):
            found.append(own)
    return found


def _fits(
    feature: Feature | None,
    names: Sequence[str],
    texts: Sequence[str],
    *,
    absent: Collection[str],
    known: Concept | None,
) -> bool:
    """Whether values can be those of a study's column."""
    said = [text.strip() for text in texts if text.strip() and text.strip() not in absent]
    if not said:
        return False
    if feature is not None and feature.kind == "text":
        return any(" " in text for text in said)
    if feature is None or feature.kind == "categorical":
        # A hospital has its own words: few of them, and where the study's names are numbers, these.
        several = set(said)
        coded = all(name.strip().isdigit() for name in names)
        translated = sum(meant(text, names) is not None for text in several)
        return translated >= _FITS * len(several) if coded else translated > 0 or len(several) <= 2 * len(names)
    values = numbers_of(said)
    if len(values) < _FITS * len(said):
        return False
    middle = float(np.median(values))
    return _near(feature, middle) or (known is not None and factor_of(feature, middle, known) is not None)


def numbers_of(texts: Sequence[str]) -> Float64[ndarray, " values"]:
    """Those of the texts that are numbers, in the form in which the most are."""
    read = [read_numbers([plain_number(text, form) for text in texts]) for form in _FORMS]
    best = max(read, key=lambda values: int(np.isfinite(values).sum()))
    return np.asarray(best[np.isfinite(best)])


def expected(feature: Feature) -> float:
    """The number that the study expects about the middle of a numeric column."""
    assert feature.centre is not None
    return expm1(feature.centre) if feature.log else feature.centre


def _near(feature: Feature, middle: float) -> bool:
    assert feature.centre is not None
    assert feature.scale is not None
    if not (feature.least or -inf) <= middle <= (inf if feature.most is None else feature.most):
        return False
    at = np.log1p(max(middle, 0.0)) if feature.log else middle
    return bool(abs(at - feature.centre) <= _SCALES * feature.scale)


def factor_of(feature: Feature, middle: float, known: Concept | None) -> tuple[float, str] | None:
    """A known factor that takes a median near to what the study expects, with its words; None where none does."""
    centre = expected(feature)
    if known is None or centre <= 0 or middle <= 0:
        return None
    for factor, words in known.factors.items():
        for times in (factor, 1 / factor):
            if abs(middle * times / centre - 1) <= _NEAR:
                return times, words
    return None


def other_unit(feature: Feature, middle: float) -> tuple[float | None, str] | None:
    """Whether a column's median may be in another unit than the study's: the factor and its words, where one is known;
    None where nothing is to be asked.
    """
    assert feature.centre is not None
    assert feature.scale is not None
    centre = expected(feature)
    at = np.log1p(max(middle, 0.0)) if feature.log else middle
    if abs(at - feature.centre) <= feature.scale:
        return None
    found = factor_of(feature, middle, concept_of(feature.column))
    if found is not None:
        return found
    if centre > 0 and not centre / _ASKED < middle < centre * _ASKED:
        return None, ""
    return None


def meant(text: str, names: Sequence[str]) -> str | None:
    """The one of the study's names that a text seems to mean; None where none or several fit.

    By spelling (case, blanks, 1.0 for 1), or as another word for the same.
    """
    wanted = _folded(text)
    for same in (
        [name for name in names if _folded(name) == wanted],
        [name for name in names if any({wanted, name.casefold().strip()} <= group for group in _SAME)],
    ):
        if same:
            return same[0] if len(same) == 1 else None
    return None


def _folded(text: str) -> str:
    plain = text.strip().casefold()
    whole = _WHOLE.fullmatch(plain)
    return whole.group(1) if whole else plain
