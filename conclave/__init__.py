"""Conclave for researchers: private labels from votes, under each party's own budget, and what they cost.

    your votes and budgets     label, replay, Labels, Replay
    your records and budgets   label_by_records, PoolLabels
    a released student         predict
    a study                    define_study, run, plan, read_study, write_study, Study, Run, StudyPlan
    accounting alone           rdp_curve, epsilon_after, queries_afforded, mechanisms, accountants, RdpCurve
    delta as a curve           privacy_curve, privacy_loss_distribution, PrivacyCurve
    errors                     ConclaveError, InvalidInput, BudgetExceeded, DataUnavailable, DataCorrupt

Everything else in the packages of this distribution is internal. Names are loaded when they are first used, so that
importing this takes no time; `run` and tables for pandas need the packages of the extra [sim].
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from conclave.accounting import (
        accountants,
        epsilon_after,
        mechanisms,
        privacy_curve,
        privacy_loss_distribution,
        queries_afforded,
        rdp_curve,
    )
    from conclave.labelling import Labels, Replay, label, replay
    from conclave.records import PoolLabels, label_by_records
    from conclave.released import predict
    from conclave.studies import Run, define_study, plan, read_study, run, write_study
    from protocols.bounds.rdp import RdpCurve
    from protocols.budgets.privacy_curve import PrivacyCurve
    from protocols.errors import BudgetExceeded, ConclaveError, DataCorrupt, DataUnavailable, InvalidInput
    from protocols.study.plan import StudyPlan
    from protocols.study.study import Study
    from protocols.votes import ABSTAIN, NOT_ASKED

__all__ = [
    "ABSTAIN",
    "NOT_ASKED",
    "BudgetExceeded",
    "ConclaveError",
    "DataCorrupt",
    "DataUnavailable",
    "InvalidInput",
    "Labels",
    "PoolLabels",
    "PrivacyCurve",
    "RdpCurve",
    "Replay",
    "Run",
    "Study",
    "StudyPlan",
    "accountants",
    "define_study",
    "epsilon_after",
    "label",
    "label_by_records",
    "mechanisms",
    "plan",
    "predict",
    "privacy_curve",
    "privacy_loss_distribution",
    "queries_afforded",
    "rdp_curve",
    "read_study",
    "replay",
    "run",
    "write_study",
]

_NAMES: Final = {
    "conclave.accounting": "accountants epsilon_after mechanisms privacy_curve privacy_loss_distribution "
    "queries_afforded rdp_curve",
    "conclave.labelling": "Labels Replay label replay",
    "conclave.records": "PoolLabels label_by_records",
    "conclave.released": "predict",
    "conclave.studies": "Run define_study plan read_study run write_study",
    "protocols.bounds.rdp": "RdpCurve",
    "protocols.budgets.privacy_curve": "PrivacyCurve",
    "protocols.errors": "BudgetExceeded ConclaveError DataCorrupt DataUnavailable InvalidInput",
    "protocols.study.study": "Study",
    "protocols.votes": "ABSTAIN NOT_ASKED",
    "protocols.study.plan": "StudyPlan",
}
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'conclave' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ImportError as missing:
        needs = f"conclave.{name} needs {missing.name}"
        try:
            from protocols.installing import in_the_way, install

            other = in_the_way(missing.name or "")
        except ImportError:  # protocols itself is somebody else's
            found = Path(str(sys.modules["protocols"].__file__))
            other = found.parent if found.name == "__init__.py" else found
        if other is not None:
            raise ImportError(f"{needs}, and {other} is in its way; rename that, or run from elsewhere") from missing
        if not isinstance(missing, ModuleNotFoundError):
            raise
        raise ImportError(f"{needs}, which is not installed: {install('sim')}") from missing


def __dir__() -> list[str]:
    return __all__
