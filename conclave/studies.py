"""A study from Python: defined, planned, run in this process on a data set, or written for organisations."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final  # Any: JSON

from jaxtyping import Int64
from numpy import ndarray

from conclave.arguments import frame
from protocols.budgets.accountant import accountant
from protocols.errors import InvalidInput
from protocols.study import file
from protocols.study.plan import StudyPlan, make_plan, must_afford
from protocols.study.study import Study
from runtime.distribution import lacking
from runtime.files import write_atomically
from simulations.pipeline import run as run_pipeline
from simulations.pipeline import study_of
from simulations.progress import Reporter
from simulations.setup.experiment import SETTINGS, experiment, experiment_budgets, make_study
from simulations.stages.inputs import Host, read_inputs

if TYPE_CHECKING:
    import pandas as pd

# The settings of a run that a study's terms follow from; the others say how its votes are made and used.
_TERMS: Final = (
    "parties teachers_per_party mechanism accountant weights individualization privacy_groups stop answer_rate quorum "
    "confidentiality units colluders data_seed".split()
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """What a run gave: its study, the labels of the first seed (class, ABSTAIN or NOT_ASKED, one per query of the
    public pool), and the figures of `conclave-simulate run`, as docs/reference/outputs.md describes them in
    summary.json."""

    study: Study = field(repr=False)
    labels: Int64[ndarray, " queries"] = field(repr=False)
    figures: dict[str, Any]

    def to_pandas(self) -> pd.DataFrame:
        """One row per group of parties with the same budget: what may be published and what was used."""
        groups = self.figures["groups"]
        return frame({key: [group[key] for group in groups] for key in groups[0]})


def define_study(
    *,
    budgets: str,
    delta: float,
    unit: str,
    view: str,
    classes: int,
    queries: int,
    name: str = "study",
    **settings: object,
) -> Study:
    """The study that these settings make: noise and threshold scaled, weights or rates solved.

    budgets: as --budgets of `conclave-simulate run`, for instance "1:0.5,2:0.5"; classes >= 2; queries: the size of the
    public pool; name: printable text, which is in the digest; settings: any other of `conclave-simulate run` that is a
    term of a study: parties, teachers_per_party, mechanism, its noise (sigma=..., in votes), accountant, weights,
    individualization, privacy_groups, stop, answer_rate, quorum, confidentiality, units, colluders, data_seed. Raises
    InvalidInput.

    >>> import conclave
    >>> study = conclave.define_study(parties=100, budgets="1:0.5,4:0.5", delta=1e-5, unit="record", view="label",
    ...                               classes=10, queries=1000, mechanism="gnmax", sigma=20.0)
    >>> len(study.roster), study.classes
    (100, 10)
    """
    idle = [each for each in settings if each in SETTINGS and each not in _TERMS]
    if idle:
        raise InvalidInput(f"{idle[0]} is no term of a study; allowed: {', '.join(_TERMS)}, and the mechanism's noise")
    chosen = experiment(**settings, budgets=budgets, delta=delta, unit=unit, view=view, classes=classes)
    if chosen.accountant is not None:
        accountant(chosen.accountant)  # one that charges
    return replace(make_study(chosen, experiment_budgets(chosen), classes=classes, queries=queries), name=name)


def plan(study: Study) -> StudyPlan:
    """What each group of equal budgets affords before anything is voted on; `answers_all` labels if all are answered.

    Raises InvalidInput for a budget that affords nothing.

    >>> import conclave
    >>> study = conclave.define_study(parties=100, budgets="1:0.5,4:0.5", delta=1e-5, unit="record", view="label",
    ...                               classes=10, queries=1000, mechanism="gnmax", sigma=20.0)
    >>> [(group.budget, group.answers_all) for group in conclave.plan(study).groups]
    [(1.0, 95), (4.0, 95)]
    """
    return make_plan(study)


def run(
    *,
    budgets: str,
    delta: float,
    unit: str,
    view: str,
    data_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    **settings: object,
) -> Run:
    """Trains teachers, casts their votes, labels the public pool and trains a student, in this process.

    data_dir: the folder of the data sets, by default CONCLAVE_DATA; cache_dir: of trained teachers, by default one that
    is thrown away; settings: any other of `conclave-simulate run`, as dataset="digits", parties=20, seeds=(0, 1). The
    same labels and spends as that command. Raises ConclaveError.

    >>> import conclave
    >>> result = conclave.run(dataset="glyphs", private_size=400, parties=20, queries=60, student="none",
    ...                       budgets="4", delta=1e-5, unit="record", view="label", attack=False, baselines=False)
    >>> result.figures["parties"], result.figures["asked"] <= 60
    (20, True)
    """
    try:
        from simulations.results.files import summary  # pyarrow
    except ModuleNotFoundError as missing:
        raise lacking(missing, "conclave.run", "sim") from missing

    chosen = experiment(**settings, budgets=budgets, delta=delta, unit=unit, view=view)
    data = data_dir or os.environ.get("CONCLAVE_DATA")
    with tempfile.TemporaryDirectory() as thrown_away:
        host = Host(
            data_dir=None if data is None else Path(data),
            cache_dir=Path(cache_dir or thrown_away),
            engine="in_process",
            workers=1,
        )
        reporter = Reporter(quiet=True)
        inputs = read_inputs(chosen, host=host, reporter=reporter)
        given, study = study_of(inputs)
        must_afford(make_plan(study))
        result = run_pipeline(inputs, budgets=given, study=study, host=host, reporter=reporter)
        return Run(study=study, labels=result.seeds[0].labelling.labels, figures=summary(result))


def write_study(study: Study, path: str | Path) -> None:
    """Writes a study as TOML (docs/reference/study-file.md); `read_study` gives an equal one back.

    The file is written as a whole or not at all, readable by its owner only; a missing folder is created. Raises
    StorageFailed.

    >>> import conclave, pathlib, tempfile
    >>> study = conclave.define_study(parties=3, budgets="2", delta=1e-5, unit="party", view="label", classes=2,
    ...                               queries=100)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "study.toml"
    >>> conclave.write_study(study, path)
    >>> conclave.read_study(path) == study
    True
    """
    write_atomically(Path(path), file.write_study(study))


def read_study(path: str | Path) -> Study:
    """The study in a TOML file. Raises InvalidInput for a missing, unknown or mistyped key, naming it."""
    return file.read_study(Path(path))
