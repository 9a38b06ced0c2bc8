"""The privacy statement of a release, as JSON: all that docs/explanation/mathematics.md, section 12, requires.

It is a function of the study, the labels, the evidence, the statements of earlier releases and the few facts that the
coordinator states, so `verify` can make it again and compare.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # parsed JSON, checked below

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from coordinator.labelling.soft_labels import pool_words
from coordinator.release.charges import charges_by_seat, left_out, refused_receipts, uncovered, voted
from coordinator.release.evidence import Receipt, ReleaseEvidence
from protocols.budgets.guarantee import ChargedComposition, Guarantee, compose_charges
from protocols.claims.coverage import (
    CONVERTED_SPEND,
    COUNTED_SPEND,
    EARLIER,
    SEVERAL_FIGURES,
    charged,
    not_covered_by_release,
    publishable,
    several,
    used_once,
)
from protocols.claims.in_short import in_short
from protocols.claims.kept import kept
from protocols.claims.languages import ENGLISH, say
from protocols.claims.protection import Protection
from protocols.claims.strength import Figure
from protocols.claims.who_sees import noise_added, who_saw_what
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.labelling.schedule import STOP_MEANINGS
from protocols.reading import read_json
from protocols.study.deployed import DeployedStudy
from protocols.study.protection import protection_of
from protocols.study.released_noise import noise_in
from protocols.study.several_hospitals import any_hospitals, each_seat, noise_distance, these_hospitals
from protocols.study.study import ADJACENCY, Study, party_of
from protocols.study.units import UNITS
from protocols.study.votes import TeacherVotes, UnitSums, Votes, teacher_votes, unit_sums
from protocols.votes import ABSTAIN, NOT_ASKED

# A party has few seats in one release; above this many combinations, only the epsilons are added.
_MOST_COMBINATIONS = 256


@dataclass(frozen=True)
class EarlierRelease:
    """What one statement guarantees: for each party's seats, and for patients known to 1, 2, ... hospitals.

    study: the study's digest in hexadecimal digits; before: the digests of the earlier releases' studies that it names.
    """

    name: str
    study: str
    created: str
    unit: str
    parties: Mapping[str, tuple[Guarantee, ...]]
    several: tuple[Guarantee, ...]
    before: tuple[str, ...]


def read_statement(path: Path) -> EarlierRelease:
    """The guarantees in a privacy.json. Raises DataCorrupt for a file that is not such a statement."""
    try:
        return parse_statement(read_json(path))
    except (DataUnavailable, DataCorrupt) as error:
        raise DataCorrupt(f"{path} is not a privacy statement: {str(error)[:200]}") from None


def parse_statement(statement: dict[str, Any]) -> EarlierRelease:
    """As read_statement, for parsed JSON."""
    try:
        parties: dict[str, tuple[Guarantee, ...]] = {}
        for seat in statement["seats"]:
            party = str(seat["party"])
            parties[party] = (*parties.get(party, ()), guarantee_from(seat["guarantee"]))
        study = statement["study"]
        several = tuple(guarantee_from(row["guarantee"]) for row in statement["several_hospitals"]["any"])
        return EarlierRelease(
            str(study["name"]),
            str(study["digest"]),
            str(statement["created"]),
            UNITS[UNITS.index(statement["protected"]["unit"])],
            parties,
            several,
            tuple(str(each["study"]) for each in statement.get("earlier_releases", {}).get("releases", ())),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DataCorrupt(
            f"not a privacy statement of this format: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def guarantee_from(table: Mapping[str, Any]) -> Guarantee:
    """Reads what guarantee_table wrote. Raises KeyError, TypeError, ValueError."""

    def number(name: str, absent: float) -> float:
        return absent if table[name] is None else float(table[name])

    return Guarantee(
        number("epsilon", math.inf),
        float(table["delta"]),
        number("order", math.nan),
        float(table["spend"]),
        float(table["noise_distance"]),
    )


def figure_from(table: Mapping[str, Any]) -> Figure:
    """What sentences say of a guarantee, or of a composition, of which only epsilon and delta are known."""
    if "spend" in table:
        return guarantee_from(table).figure
    return Figure(math.inf if table["epsilon"] is None else table["epsilon"], table["delta"])


def guarantee_table(guarantee: Guarantee) -> dict[str, float | None]:
    """A guarantee as JSON; an infinite epsilon, and the order of Gaussian DP, become null."""
    return {
        "epsilon": _finite(guarantee.epsilon),
        "delta": guarantee.delta,
        "order": _finite(guarantee.order),
        "spend": guarantee.spend,
        "noise_distance": guarantee.noise_distance,
    }


def together(this: EarlierRelease, before: Sequence[EarlierRelease]) -> dict[str, Any]:
    """The composition of this release with the earlier ones, per party and for patients known to several, as JSON.

    Raises InvalidInput for a release that is given twice, and if an earlier release names one that is missing.
    """
    digests = [release.study for release in (*before, this)]
    twice = next((digest for digest in digests if digests.count(digest) > 1), None)
    if twice is not None:
        raise InvalidInput(f"the release of study {twice[:16]} is given twice; allowed: each earlier release once")
    missing = {digest: each.name for each in before for digest in each.before if digest not in digests}
    if missing:
        digest, name = next(iter(missing.items()))
        raise InvalidInput(
            f"the earlier release {name!r} names one of study {digest[:16]} before it; give that one too"
        )
    if not before:
        return {"releases": [], "unit": this.unit, "parties": [], "several": []}
    parties = []
    for party, own in this.parties.items():
        seats = [own, *(release.parties[party] for release in before if party in release.parties)]
        parties.append({"party": party, "releases": len(seats), **_table(_worst(seats))})
    several = []
    for count in range(1, len(this.several) + 1):
        rows = [release.several[min(count, len(release.several)) - 1] for release in (*before, this)]
        several.append({"hospitals": count, "releases": len(rows), **_table(compose_charges(rows))})
    units = {release.unit for release in (*before, this)}
    return {
        "releases": [
            {"name": each.name, "study": each.study, "created": each.created, "unit": each.unit} for each in before
        ],
        # The smallest: what protects a party protects each of its patients, and so each record.
        "unit": next(unit for unit in UNITS if unit in units),
        "parties": parties,
        "several": several,
    }


def _worst(seats: Sequence[Sequence[Guarantee]]) -> ChargedComposition:
    """The worst combination of seats: in each release, a patient belongs to one seat of the party."""
    if math.prod(len(each) for each in seats) <= _MOST_COMBINATIONS:
        combinations = [compose_charges(rows) for rows in itertools.product(*seats)]
        return max(combinations, key=lambda each: each.epsilon)
    basic = sum(max(guarantee.epsilon for guarantee in each) for each in seats)
    delta = sum(max(guarantee.delta for guarantee in each) for each in seats)
    return ChargedComposition(delta, basic, math.inf, math.nan)


def _table(composition: ChargedComposition) -> dict[str, float | None]:
    return {
        "epsilon": _finite(composition.epsilon),
        "delta": composition.delta,
        "epsilon_by_adding": _finite(composition.basic),
        "epsilon_by_renyi": _finite(composition.renyi),
        "order": _finite(composition.order),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


_FORMAT = "conclave privacy statement 1"
_LIBRARY = re.compile(r"[A-Za-z0-9._+!-]{1,120}")
_VERIFY = (
    "Run `conclave-coordinator verify FOLDER --authority authority.pem`, with the authority's certificate that the "
    "node of your own hospital holds since it enrolled, or that the operator gave you apart from the folder; not the "
    "copy in the folder. It needs no account and no network.",
    "It checks the signature and every file's hash, the chain of the coordinator's audit log, every outcome that was "
    "sent and every receipt that a party signed, that both agree with the released labels, that receipts cover every "
    "charge except those stated as unproven or whose last receipt was refused, that each charge recomputes from "
    "the study, that no cap was passed, and that the figures here recompute. In a study with a guardian it checks that "
    "the guardian signed these very labels, or noisy sums, batch by batch. Where records vote, it needs the public "
    "pool, `--pool FILE`, to check that the soft labels follow from the released sums. It does not know which "
    "certificates were revoked.",
    "Each hospital can compare with its own node: `conclave-party budget show` and `conclave-party verify`.",
)


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything a statement is made from.

    stated: what only the coordinator asserts, see `stated_facts`; earlier: statements of earlier releases.
    """

    study: DeployedStudy
    labels: Int64[ndarray, " queries"] = field(repr=False)
    reinforced: Int64[ndarray, " queries"] = field(repr=False)
    evidence: ReleaseEvidence
    receipts: list[Receipt]
    earlier: tuple[EarlierRelease, ...]
    stated: Mapping[str, Any]


def stated_facts(
    *,
    created: str,
    software: str,
    stop: str,
    left_out: Mapping[str, Mapping[str, str]],
    differences: Mapping[str, int],
    named: tuple[tuple[str, ...], ...],
    unproven: tuple[str, ...],
    libraries: Mapping[str, str],
    pool: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The facts that nothing in a release proves: time, software, how the labelling ended, why votes are missing, ...

    left_out: seat to batch (its number as text) to the reason. Reasons are text from the other side, so only their code
    is kept. named: sets of hospitals, for each of which the guarantee of a patient known to all of them is stated;
    unproven: seats whose charges no receipt covers; libraries: the distributions that were loaded, with their versions;
    pool: how the public pool compares with the units' records (coordinator.labelling.soft_labels.pool_facts), which
    whoever has the pool can make again.
    """
    return {
        "created": created,
        "software": software,
        "stop": stop if stop in STOP_MEANINGS else "unknown",
        "left_out": {
            seat: {number: _code(code) for number, code in sorted(batches.items(), key=lambda each: int(each[0]))}
            for seat, batches in sorted(left_out.items())
        },
        "differences": {seat: int(amount) for seat, amount in sorted(differences.items())},
        "named_hospitals": [list(each) for each in named],
        "unproven": sorted(unproven),
        "libraries": {name: each for name, each in sorted(libraries.items()) if _LIBRARY.fullmatch(name + each)},
        "pool": None if pool is None else dict(pool),
    }


def statement(facts: Facts) -> dict[str, Any]:
    """The statement. Raises InvalidInput for a named hospital that is not on the roster."""
    study = facts.study
    terms = study.terms
    labels, about, kind = facts.labels, protection_of(study), _KINDS[type(study.votes)]
    made = {
        "format": _FORMAT,
        "created": facts.stated["created"],
        "software": facts.stated["software"],
        "study": {
            "name": study.name,
            "digest": study.digest.hex(),
            "task": terms.task,
            "coordinator": terms.coordinator,
            "ends": terms.ends,
            "licence": terms.licence,
            "class_names": list(terms.class_names),
            "findings": list(study.findings),
            "pool_sha256": terms.pool_sha256,
            "quorum": study.quorum,
            **kind.terms(study),
        },
        "protected": {
            "unit": study.unit,
            "unit_in_words": about.unit_in_words,
            "adjacency": ADJACENCY,
            "view": study.view,
            "view_in_words": f"anyone who sees {about.view_in_words}.",
            "confidentiality": study.confidentiality.name,
        },
        **kind.noise(study),
        "accounting": {
            "method": study.budgets.accountant.statement,
            "accountant": study.accountant_name,
            "unit": study.budgets.unit,
            "source": study.budgets.accountant.source_for(study.mechanism),
            "noise_distance": noise_distance(study),
            "charged_in_words": charged(about),
            "spend_in_words": CONVERTED_SPEND if study.budgets.planned is None else COUNTED_SPEND,
            "publishable": True,
            "publishable_in_words": publishable(about),
        },
        "records": kind.records(facts),
        "queries": {
            "pool": len(labels) // study.votes.asks.rows,
            "asked": int((labels != NOT_ASKED).sum()),
            "answered": int((labels >= 0).sum()),
            "refused": int((labels == ABSTAIN).sum()),
            "not_asked": int((labels == NOT_ASKED).sum()),
            "reinforced_by_student": int((facts.reinforced >= 0).sum()),
            "batches": len(facts.evidence.charges),
            "stop": facts.stated["stop"],
            "stop_in_words": STOP_MEANINGS.get(facts.stated["stop"], "unknown"),
        },
        "seats": _seats(facts),
        "several_hospitals": _several(facts),
        "who_saw_what": who_saw_what(about, coordinator=terms.coordinator),
        "during_the_study": _events(facts),
        "stated_by_the_coordinator": dict(facts.stated),
        "kept": kept(about),
        "not_covered": not_covered_by_release(about),
        "how_to_verify": list(_VERIFY),
    }
    made["earlier_releases"] = {"assumptions": EARLIER, **together(parse_statement(made), facts.earlier)}
    made["in_short"] = _in_short(made, about)
    return made


def _in_short(made: Mapping[str, Any], about: Protection) -> dict[str, Any]:
    """The figures at the top: of this release and all earlier ones together."""
    before = made["earlier_releases"]
    if not before["releases"]:
        hospitals = [each["guarantee"] for each in made["seats"]]
        several = [each["guarantee"] for each in made["several_hospitals"]["any"]]
        return in_short(about, hospitals=_figures(hospitals), known_to=_figures(several))
    short = in_short(about, hospitals=_figures(before["parties"]), known_to=_figures(before["several"]))
    names = ", ".join(each["name"] for each in before["releases"])
    says = f"All figures of this summary are of this release and these earlier ones together: {names}."
    for language, words in {ENGLISH: short, **short["languages"]}.items():
        words["verdict"] += say(language, "earlier", names=names)
    return {**short, "more": {"Earlier releases": f"{says} {before['assumptions']}", **short["more"]}}


def _figures(rows: list[dict[str, Any]]) -> list[Figure]:
    return [figure_from(each) for each in rows]


def _records(facts: Facts) -> dict[str, Any]:
    """What is fixed about records that vote, and what an epsilon means for one unit."""
    study, sums = facts.study, unit_sums(facts.study)
    about, guaranteed = protection_of(study), each_seat(study)
    return {
        "queries": sums.queries,
        "votes": sums.votes,
        "graded": sums.signed,
        "queries_sha256": sums.queries_sha256,
        "population": sums.population,
        "judges": None
        if sums.evaluation is None
        else {"share": sums.evaluation.share, "key": sums.evaluation.key, "threshold": sums.evaluation.threshold},
        "pool": study.terms.pool_size,
        "pool_unlike": pool_words(facts.stated["pool"], study.terms.features),
        "used_once": {
            seat.party: used_once(about, each.figure, voted=voted(facts.evidence, seat.party))
            for seat, each in zip(study.roster, guaranteed, strict=True)
        },
    }


def _mechanism(study: Study) -> dict[str, Any]:
    """How teachers' votes become labels."""
    mechanism = study.mechanism
    return {
        "mechanism": {
            "name": mechanism.name,
            "noise": mechanism.noise_law if study.lattice is None else "discrete_gaussian",
            "parameters": mechanism.values,
            "noise_in_each_sum": noise_in(study),
            "noise_in_words": noise_added(protection_of(study), votes=noise_in(study)),
            "meaning": {name: mechanism.parameters()[name].meaning for name in mechanism.values},
        }
    }


def _noise(study: Study) -> dict[str, Any]:
    """The noise of a sum, which is released as it is; integer, as a study between organisations has no other."""
    return {
        "noise": {
            "law": "discrete_gaussian",
            "sigma": unit_sums(study).sigma,
            "in_each_sum": noise_in(study),
            "in_words": noise_added(protection_of(study), votes=noise_in(study)),
        }
    }


@dataclass(frozen=True)
class _Kind:
    """What a statement says of one kind of votes: its terms, its noise, and what is fixed about records."""

    terms: Callable[[Study], dict[str, Any]]
    noise: Callable[[Study], dict[str, Any]]
    records: Callable[[Facts], dict[str, Any] | None]


_KINDS: dict[type[Votes], _Kind] = {
    TeacherVotes: _Kind(
        lambda study: {
            "teachers_per_party": teacher_votes(study).teachers,
            "participation": study.votes.participation_name,
        },
        _mechanism,
        lambda facts: None,
    ),
    UnitSums: _Kind(lambda study: {}, _noise, _records),
}


def _seats(facts: Facts) -> list[dict[str, Any]]:
    study, evidence = facts.study, facts.evidence
    budgets = study.budgets
    spent = np.array([evidence.spent(seat.party) for seat in study.roster], dtype=np.int64)
    used, guaranteed = budgets.epsilon_of(spent), each_seat(study)
    stand = charges_by_seat(study, evidence, facts.receipts)
    rows = []
    for position, seat in enumerate(study.roster):
        cap = int(budgets.cap[position])
        rows.append(
            {
                "seat": seat.party,
                "party": party_of(seat.party),
                "display_name": seat.display_name,
                "epsilon_agreed": seat.epsilon,
                "delta": seat.delta,
                "delta_set_aside_for_float_noise": float(seat.delta - budgets.delta[position]),
                "weight": seat.weight,
                "rate": seat.rate,
                "votes_moved": study.votes_per_unit * seat.weight,
                "guarantee": guarantee_table(guaranteed[position]),
                "cap": cap,
                "budget_used_share": float(budgets.share(spent)[position]),
                "budget_used_reading": float(used[position]),
                "ledger": stand[seat.party],
            }
        )
    return rows


def _several(facts: Facts) -> dict[str, Any]:
    named = [
        {"hospitals": list(hospitals), "guarantee": guarantee_table(these_hospitals(facts.study, hospitals))}
        for hospitals in facts.stated["named_hospitals"]
    ]
    about = protection_of(facts.study)
    return {
        "in_words": SEVERAL_FIGURES if about.hospitals == 1 else several(about),
        "charged_for": about.hospitals,
        "source": "protocols/budgets/guarantee.py",
        "any": [
            {"hospitals": count, "guarantee": guarantee_table(guarantee)}
            for count, guarantee in enumerate(any_hospitals(facts.study), start=1)
        ],
        "named": named,
    }


def _events(facts: Facts) -> dict[str, Any]:
    """Failures, absences and refusals, as shown by the log and the receipts or asserted by the coordinator."""
    counted: dict[str, int] = {}
    refusing: dict[str, dict[str, int]] = {}
    for entry in facts.evidence.entries:
        counted[entry.event] = counted.get(entry.event, 0) + 1
        if entry.event == "refused_by":
            codes = refusing.setdefault(str(entry.fields.get("seat", "")), {})
            code = _code(str(entry.fields.get("code", "")))
            codes[code] = codes.get(code, 0) + 1
    stand = charges_by_seat(facts.study, facts.evidence, facts.receipts)
    unproven = uncovered(facts.study, facts.evidence, facts.receipts)
    refused = refused_receipts(facts.study, facts.evidence, facts.receipts)
    return {
        "left_out": left_out(facts.study, facts.evidence, facts.stated["left_out"]),
        "refusals_logged": dict(sorted(refusing.items())),
        "log_entries": dict(sorted(counted.items())),
        "batches_reserved_and_never_released": [
            charge.number for charge in facts.evidence.charges if charge.settled is None
        ],
        "charges_unproven": unproven,
        "receipts_refused": {
            seat: [
                {"batch": batch, "why": why, "in_words": _receipt_refused(seat, batch, confirmed=seat not in unproven)}
                for batch, why in batches.items()
            ]
            for seat, batches in refused.items()
        },
        "receipts_missing": {
            seat: each["receipts_missing"] for seat, each in stand.items() if each["receipts_missing"]
        },
        "ledgers_that_differ": {seat: each["difference"] for seat, each in stand.items() if each["difference"]},
        "ledgers_that_may_differ": facts.stated["differences"],
    }


def _code(text: str) -> str:
    """`text` if it is a code: a reason is text from the other side, and is left out of a statement."""
    return text if re.fullmatch("[a-z_]{1,40}", text) else "other"


def _receipt_refused(seat: str, batch: int, *, confirmed: bool) -> str:
    """In words: what a refused receipt means. confirmed: whether a later receipt of the seat covers its charges."""
    after = "a later receipt confirms its ledger" if confirmed else "its ledger's state is not confirmed"
    return f"the receipt of {seat} for batch {batch} was refused, so it proves nothing; {after}"
