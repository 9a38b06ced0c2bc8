"""The flags of the simulator's command line, and the Experiment and Host that they describe."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar  # Any: the keywords of click.option

import click

from coordinator.queries import QUESTIONS_HELP
from coordinator.students import EQUAL, SCORES, STUDENTS
from party.teachers import TEACHERS
from protocols.budgets.accountant import ACCOUNTANTS
from protocols.budgets.individualization import WEIGHT_RULES
from protocols.errors import DataCorrupt, InvalidInput
from protocols.mechanisms import MECHANISMS, mechanism_parameters
from protocols.reading import parse_json
from protocols.research import DATA_DEPENDENT
from protocols.study.several_findings import WAYS
from simulations.datasets import DATASETS
from simulations.engines import ENGINES, USUALLY
from simulations.setup.accountants import named_accountants

if TYPE_CHECKING:
    from simulations.progress import Reporter
    from simulations.results.trackers import Tracker
    from simulations.setup.experiment import Experiment
    from simulations.stages.inputs import Host

F = TypeVar("F", bound=Callable[..., object])

# Flags that are not settings of the experiment: where files are and how results are shown.


USUAL_VOTES = "usual"  # of --votes-by: a choice between the others


class _Flag(NamedTuple):
    name: str
    help_text: str
    how: dict[str, Any]

    def add(self, function: F) -> F:
        return click.option(self.name, help=self.help_text, **self.how)(function)


def _flag(name: str, help_text: str, **how: object) -> _Flag:
    return _Flag(name, help_text, how)


def _parameter_flags() -> list[_Flag]:
    """A flag for each parameter of a mechanism, with the mechanism's own description."""
    flags = []
    for name, takers in mechanism_parameters().items():
        said: dict[str, list[str]] = {}
        for mechanism, each in takers:
            said.setdefault(f"{each.meaning} [{each.default_in_words}].", []).append(mechanism)
        text = " ".join(f"{', '.join(mechanisms)}: {meaning}" for meaning, mechanisms in said.items())
        whole = all(each.unit == "queries" for _, each in takers)
        flags.append(_flag(f"--{name.replace('_', '-')}", text, type=int if whole else float))
    return flags


_SETTINGS = [
    _flag("--parties", "Number of parties [250].", type=int),
    _flag("--dataset", f"{' | '.join(DATASETS)}, or your own FILE.csv|.tsv|.parquet|.jsonl|.npz [glyphs, which "
          "needs no file]."),
    _flag("--schema-file", "Schema (TOML) of your own data file [FILE.schema.toml].", type=click.Path()),
    _flag("--partition", "iid | dirichlet:A | classes:K | size-skew:S | feature-skew:S | by-site | by-column:NAME | "
          "by-time:NAME [iid]."),
    _flag("--teacher", f"{' | '.join(TEACHERS)} [logistic_regression]."),
    _flag("--teachers-per-party", "Teachers of each party, on disjoint shards [1].", type=int),
    _flag("--private-size", "Private records in total [all that the data set has].", type=int),
    _flag("--classes", "Number of classes (glyphs: 10 to 150; stored votes: checked).", type=int),
    _flag("--imbalance", "Glyphs: size of the largest class over the smallest, private part [1].", type=float),
    _flag("--mislabelled", "Glyphs: share of private labels that are wrong [0].", type=float),
    _flag("--queries", "Size of the public pool [the data set's own].", type=int),
    _flag("--questions", f"What teachers are asked first: {QUESTIONS_HELP} [given]."),
    _flag("--findings-by", "Records with several findings: a query for each finding (binary), a class for each set "
          "of those that occur in the pool (powerset), or one vote on all of them, clipped (tau) [none].",
          type=click.Choice(list(WAYS))),
    _flag("--votes-by", "Who votes: teachers, on every query, or each private record, once, with public features "
          "of it; usual: records where teachers' labels would be few or wrong, by public figures [teacher].",
          type=click.Choice(["teacher", "record", USUAL_VOTES])),
    _flag("--record-queries", "--votes-by record: graded (features that follow from the pool and the noise) | columns "
          "(cells of each column of a table) | clusters:N (of the pool) | columns+clusters:N (both) [graded]."),
    _flag("--bins", "--votes-by record: cells of a column of numbers [2 below 2,000 units, else 10].",
          type=int),
    _flag("--nearest", "--record-queries clusters:N: in how many of them a record votes [1].", type=int),
    _flag("--partitions", "--record-queries clusters:N: how often N, from other seeds [1; beside columns as many, at "
          "most 12].", type=int),
    _flag("--evaluate", "--votes-by record: share of the units that do not vote and judge the student, at no further "
          "cost, 0.05 to 0.5 [nobody judges].", type=float),
    _flag("--residuals/--no-residuals", "--record-queries graded: units are asked once more, in a second sum, how far "
          "the first one's scores are from their labels; both sums are one charge [where chance in the pool disturbs "
          "as much as the noise].", default=None),
    _flag("--features", "What clusters and --questions compare records by, and what teachers and students learn "
          "from if the next two say so: auto | raw | hog | pca:N | projection:N | lsa:N | onnx:FILE, "
          "then +standard, +pca:N or +projection:N [auto: raw for tables, lsa for text, gradients for images]."),
    _flag("--teacher-features/--no-teacher-features", "Teachers learn from the features [off].",
          default=None),
    _flag("--student-features/--no-student-features", "So does the student [off; on for a linear student of "
          "images].", default=None),
    _flag("--votes", "Replay stored votes (.npy) instead of training.", type=click.Path()),
    _flag("--votes-kind", "ids: class ids [parties, queries]; counts: votes per class [queries, classes]. "
          "Required unless the dtype is float (counts).", type=click.Choice(["ids", "counts"])),
    _flag("--labels", "True labels of stored votes' queries: FILE.npy or FILE.npz:KEY."),
    _flag("--budgets", "1.0 | 1:0.34,2:0.43,3:0.23 (epsilon:share) | lognormal:MEDIAN,SIGMA | uniform:LOW,HIGH | "
          "FILE.csv (party, epsilon, delta) [1:0.34,2:0.43,3:0.23]."),
    _flag("--delta", "delta of every budget [1e-5].", type=float),
    _flag("--unit", "Who is protected: one record, one patient (--votes-by record), or all of a party's data "
          "[record].", type=click.Choice(["record", "patient", "party"])),
    _flag("--view", "What is seen: labels only, or the noisy histogram too [label].",
          type=click.Choice(["label", "histogram"])),
    _flag("--accountant", f"What charges budgets: {' | '.join(ACCOUNTANTS)} [label_only for labels, else the "
          "tightest]; in a list with it, those that analyse the votes for research: "
          f"{', '.join(DATA_DEPENDENT)}."),
    _flag("--mechanism", f"{' | '.join(MECHANISMS)} [thresholded_gnmax]. Noise and threshold that are not given are "
          "smaller where budgets would outlast the pool.", type=click.Choice(list(MECHANISMS))),
    *_parameter_flags(),
    _flag("--individualization", "What a larger budget buys: weighting (of votes), vanishing (more queries, by "
          "a public pattern), secret-vanishing (by secret coins), upsampling (records in several teachers; pools all "
          "data) [weighting].",
          type=click.Choice(["weighting", "upsampling", "vanishing", "secret-vanishing"])),
    _flag("--weights", "weighting: how much a party's vote counts [exhaustive].",
          type=click.Choice(list(WEIGHT_RULES))),
    _flag("--privacy-groups/--no-privacy-groups", "Budgets belong to records: every party splits its records "
          "by --budgets, with teachers for each [off].", default=None),
    _flag("--stop", "An exhausted budget ends the study, or its party stops voting [first-exhausted].",
          type=click.Choice(["first-exhausted", "drop-exhausted"])),
    _flag("--answer-rate", "Public estimate of the share of queries answered, to choose orders [1].", type=float),
    _flag("--quorum", "Parties that must answer each batch [1; 90 % of them at level secure_sum].", type=int),
    _flag("--confidentiality", "Who may see a vote: clear (the coordinator), secure_sum (nobody; the coordinator sees "
          "the noisy histogram: give --view histogram), two_server (nobody), hidden_queries (nobody; a hospital asks "
          "about records that only it sees) [clear].",
          type=click.Choice(["clear", "secure_sum", "two_server", "hidden_queries"])),
    _flag("--input-bound", "hidden_queries: the largest absolute value in a query; larger ones are cut off [1 for "
          "images, 8 for tables].", type=float),
    _flag("--units", "Integer noise: lattice units per vote, a power of two [64; clear: real-valued noise].", type=int),
    _flag("--colluders", "secure_sum: parties that may collude with the coordinator [0].", type=int),
    _flag("--dropout", "Probability that a party misses a batch [0].", type=float),
    _flag(
        "--student",
        f"{' | '.join(STUDENTS)} | {SCORES} (those of graded votes, untrained) | usual | auto (cross-validation on the "
        "labels) | none (stop after the labels); "
        f"behind a kind, {EQUAL}: classes count the same "
        "[usual: by the number of labels, or of units where records vote].",
    ),
    _flag("--groups", "Columns of a table, between commas: accuracy on test records by each, besides by class and "
          "site [none]."),
    _flag("--baselines/--no-baselines", "Measure the baselines of the report [on].", default=None),
    _flag("--attack/--no-attack", "Run a membership inference attack on the student [off].", default=None),
    _flag("--seeds", "Seeds of noise and student: 0-9, 3 or 0,2,5-7 [0]."),
    _flag("--data-seed", "Seed of data, partition, teachers, and of who gets which budget [0].", type=int),
]  # fmt: skip
_ANALYSED = ("--votes", "--votes-kind", "--labels", "--queries", "--classes", "--delta", "--unit", "--mechanism")
_OF_DATA = "--dataset --schema-file --private-size --classes --imbalance --mislabelled --queries --data-seed".split()
_HOST_FLAGS = [
    _flag("--data-dir", "Folder of the data sets [CONCLAVE_DATA].", type=click.Path()),
    _flag("--cache-dir", "Folder of cached teachers and votes [CONCLAVE_CACHE, or your cache folder].",
          type=click.Path()),
    _flag("--engine", f"{' | '.join(ENGINES)} | {USUALLY} (flower where RAY_ADDRESS names a cluster, else in_process) "
          "[usual].", default=USUALLY),
    _flag("--workers", "Worker processes [one per core].", type=int),
]  # fmt: skip


def _adding(function: F, flags: Iterable[_Flag]) -> F:
    for flag in reversed([*flags]):
        function = flag.add(function)
    return function


def settings_flags(function: F) -> F:
    """Adds every flag of an experiment and of the host."""
    return _adding(function, _SETTINGS + _HOST_FLAGS)


def host_flags(function: F) -> F:
    """Adds the flags of the host."""
    return _adding(function, _HOST_FLAGS)


def data_flags(function: F) -> F:
    """Adds the flags that say which data there are, and where."""
    wanted = (*_OF_DATA, "--data-dir", "--cache-dir")
    return _adding(function, [flag for flag in _SETTINGS + _HOST_FLAGS if flag.name in wanted])


def analysis_flags(function: F) -> F:
    """Adds the flags of an experiment that matter to an analysis of stored votes without a budget."""
    wanted = {*_ANALYSED, *(flag.name for flag in _parameter_flags())}
    return _adding(function, [flag for flag in _SETTINGS if flag.name in wanted])


def given_settings(flags: dict[str, object]) -> dict[str, object]:
    """The settings that were given on the command line, by name."""
    from simulations.setup.experiment import SETTINGS, parse_seeds

    known = {*SETTINGS, *mechanism_parameters()}
    given = {key: value for key, value in flags.items() if value is not None and key in known}
    if "seeds" in given:
        given["seeds"] = parse_seeds(str(given["seeds"]))
    return given


def overrides_from(words: Sequence[str], *, lists: bool) -> dict[str, object]:
    """Settings of `key=value`, by name. A value in brackets is a list, if `lists`: JSON, or text between commas.

    Raises InvalidInput for other words, and for a key that is given twice.
    """
    found: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key or key in found:
            raise InvalidInput(f"{word!r} is no setting; allowed: KEY=VALUE, each KEY once")
        found[key] = value
        if value.startswith("["):
            if not lists:
                raise InvalidInput(f"{word!r} is a list; allowed: one value (a sweep takes lists)")
            found[key] = _list(value)
    return found


def _list(text: str) -> list[object]:
    try:
        found = parse_json(text, where="a list")
    except DataCorrupt:
        found = [each.strip() for each in text.removeprefix("[").removesuffix("]").split(",")]
    return found if isinstance(found, list) else [found]


def track_flag(function: F) -> F:
    """Adds --track."""
    about = "Write settings and figures there too: mlflow | mlflow:URI | tensorboard:FOLDER [nowhere]."
    return click.option("--track", help=about)(function)


def tracker_from(flags: dict[str, Any]) -> Tracker | None:
    """Where figures are tracked besides, its package imported; None for nowhere. Raises InvalidInput."""
    if not flags["track"]:
        return None
    from simulations.results.trackers import find_tracker

    return find_tracker(str(flags["track"]))


def study_words(function: F) -> F:
    """Adds the words that name a study and change it, before the flags."""
    return click.argument("words", nargs=-1, metavar="[STUDY.toml] [KEY=VALUE]...")(function)


def worded_settings(flags: dict[str, Any]) -> dict[str, object]:
    """The settings of a study's file, and of `key=value`, which come before them. Raises InvalidInput."""
    from runtime.settings import named_toml
    from simulations.setup.experiment import parse_seeds

    words: tuple[str, ...] = flags.get("words", ())
    files = [word for word in words if "=" not in word]
    if len(files) > 1:
        raise InvalidInput(f"{files[1]!r} is a second study; allowed: one file, and KEY=VALUE")
    study = named_toml(Path(files[0])) if files else {}
    if tables := {"base", "grid"} & set(study):
        raise InvalidInput(f"{files[0]} has a table [{min(tables)}], so it is a sweep; allowed: settings alone")
    settings = study | overrides_from([word for word in words if "=" in word], lists=False)
    if isinstance(settings.get("seeds"), str):
        settings["seeds"] = parse_seeds(str(settings["seeds"]))
    return settings


def settings_from(flags: dict[str, object]) -> Experiment:
    """The experiment that a study's file, `key=value` and flags describe, the last first.

    Raises InvalidInput, also for flags that would have no effect.
    """
    from simulations.setup.experiment import DATA_SETTINGS, experiment

    given = given_settings(flags)
    if "votes" in given:
        idle = [name for name in DATA_SETTINGS if name in given and not (name == "student" and given[name] == "none")]
        if idle:
            raise InvalidInput(f"--{idle[0].replace('_', '-')} has no effect with --votes; leave one of them out")
    said = {**worded_settings(flags), **given}
    if said.get("votes_by") == USUAL_VOTES:
        del said["votes_by"]  # chosen_votes chooses, from what teachers would give
    return experiment(**said)


def check_idle_analyses(settings: Experiment, given: dict[str, object], *, votes: bool) -> None:
    """Raises InvalidInput for settings of analysing accountants that were given although none of them is requested.

    votes: whether there will be votes to analyse; a plan has none.
    """
    _, analyses = named_accountants(settings.accountant)
    if analyses and not votes:
        raise InvalidInput(
            f"accountant {analyses[0]!r} analyses votes, and a plan has none; allowed: one that charges budgets "
            f"({', '.join(ACCOUNTANTS)})"
        )


def host_from(flags: dict[str, object]) -> Host:
    """Where this run finds data and caches, its engine and its workers. Raises InvalidInput."""
    import platformdirs

    from simulations.stages.inputs import Host

    data = flags["data_dir"] or os.environ.get("CONCLAVE_DATA")
    cache = flags["cache_dir"] or os.environ.get("CONCLAVE_CACHE") or platformdirs.user_cache_dir("conclave")
    workers = flags["workers"]
    if isinstance(workers, int) and workers < 1:
        raise InvalidInput(f"workers is {workers}; allowed: at least 1")
    return Host(
        data_dir=None if not data else Path(str(data)),
        cache_dir=Path(str(cache)),
        engine=str(flags["engine"]),
        workers=workers if isinstance(workers, int) else None,
        named={name: flags[name] for name in ("data_dir",) if flags[name]},
    )


def reporter_from(flags: dict[str, object]) -> Reporter:
    """Shows progress on standard error, unless --quiet."""
    from simulations.progress import Reporter

    return Reporter(quiet=bool(flags["quiet"]))


def say_defaults(settings: Experiment, reporter: Reporter, *, varied: tuple[str, ...] = ()) -> None:
    """Prints the privacy-relevant settings first. varied: what a sweep varies, of which it prints no value."""
    parts = []
    for name in ("unit", "view", "delta"):
        given = "" if name in settings.given else " (default)"
        parts.append(f"{name} varied" if name in varied else f"{name} {getattr(settings, name)}{given}")
    budgets = "varied" if "budgets" in varied else settings.budgets
    reporter.say(f"privacy: {', '.join(parts)}")
    reporter.say(f"privacy: adjacency replace-one; budgets {budgets}")
