"""Every sentence about who is protected, from whom, by what, and what is not covered: each is written only here.

Pages, terminal output and the text before an approval combine them for their readers. They depend on the study
(`Protection`), so none claims more than its level, unit, view and participation give. The mathematics behind them is in
docs/explanation/mathematics.md, and what attackers can do in docs/explanation/threat-model.md.
"""

from __future__ import annotations

from protocols.claims.coverage import (
    ANY_VOTES,
    CONVERTED_SPEND,
    COUNTED_LIFETIME,
    COUNTED_SPEND,
    EACH_RECORD,
    EARLIER,
    ONE_SERVER,
    OWN_RECORDS,
    OWN_TRAINING,
    POPULATION,
    SEVERAL,
    SEVERAL_COST,
    SEVERAL_FIGURES,
    SEVERAL_RECORDS,
    SIMULATED,
    WHOLE_PATIENT,
    caveats,
    charged,
    not_covered_by_approval,
    not_covered_by_release,
    promise,
    publishable,
    used_once,
)
from protocols.claims.in_short import in_short
from protocols.claims.kept import BYTES, kept, keys
from protocols.claims.protection import LEVEL_NAMES, Protection
from protocols.claims.strength import (
    WEAK,
    Figure,
    accused_in_words,
    attack,
    factor,
    odds,
    percent_at_most,
    strength,
)
from protocols.claims.who_sees import (
    guardian_sees,
    leaves,
    noise_added,
    not_covered_by_guardian,
    not_protected_from,
    who_saw_what,
    who_sees_votes,
)
from protocols.claims.withdrawal import withdrawal

__all__ = [
    "ANY_VOTES",
    "BYTES",
    "CONVERTED_SPEND",
    "COUNTED_LIFETIME",
    "COUNTED_SPEND",
    "EACH_RECORD",
    "EARLIER",
    "LEVEL_NAMES",
    "ONE_SERVER",
    "OWN_RECORDS",
    "OWN_TRAINING",
    "POPULATION",
    "SEVERAL",
    "SEVERAL_COST",
    "SEVERAL_FIGURES",
    "SEVERAL_RECORDS",
    "SIMULATED",
    "WEAK",
    "WHOLE_PATIENT",
    "Figure",
    "Protection",
    "accused_in_words",
    "attack",
    "caveats",
    "charged",
    "factor",
    "guardian_sees",
    "in_short",
    "kept",
    "keys",
    "leaves",
    "noise_added",
    "not_covered_by_approval",
    "not_covered_by_guardian",
    "not_covered_by_release",
    "not_protected_from",
    "odds",
    "percent_at_most",
    "promise",
    "publishable",
    "strength",
    "used_once",
    "who_saw_what",
    "who_sees_votes",
    "withdrawal",
]
