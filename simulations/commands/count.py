"""The sub-command count: a count of patients (protocols/study/purposes.py) at hospitals on this host."""

from __future__ import annotations

import os
from pathlib import Path

import click

from protocols.errors import InvalidInput
from simulations.exits import EXIT_CODES


@click.command(name="count", epilog=EXIT_CODES)
@click.option("--dataset", default="heart_disease", show_default=True, help="A table with columns.")
@click.option("--data-dir", type=click.Path(), help="Folder of the data sets [CONCLAVE_DATA].")
@click.option("--parties", type=click.IntRange(2), help="Hospitals [one for each site].")
@click.option("--columns", help="Columns to count, between commas [all].")
@click.option("--by-label", is_flag=True, help="Count each value of a column by label, with more noise in all.")
@click.option("--epsilon", type=float, default=0.1, show_default=True, help="Epsilon of every hospital.")
@click.option("--delta", type=float, default=1e-5, show_default=True)
@click.option("--unit", type=click.Choice(["record", "patient"]), default="record", show_default=True)
@click.option(
    "--confidentiality", type=click.Choice(["clear", "secure_sum", "two_server"]), default="clear", show_default=True
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the split and the noise.")
@click.option("--json", "as_json", is_flag=True, help="Print counts.json.")
def count_flags(
    dataset: str,
    data_dir: str | None,
    parties: int | None,
    columns: str | None,
    by_label: bool,
    epsilon: float,
    delta: float,
    unit: str,
    confidentiality: str,
    seed: int,
    as_json: bool,
) -> None:
    """Simulate a count of patients: what hospitals on this host would learn, with the noise of a study.

    \b
    Examples:
      conclave-simulate count --dataset heart_disease --columns age,sex --epsilon 0.5
      conclave-simulate count --dataset diabetes130 --parties 8 --by-label --confidentiality secure_sum
    """
    import numpy as np

    from protocols.claims.coverage import SIMULATED
    from protocols.levels.simulated import drawn_noise, simulated_level
    from protocols.release.counts import counts_csv, counts_json, counts_of, to_text
    from protocols.study.count_cells import count_cells, counted_feature
    from protocols.study.deployed import deployed
    from protocols.study.levels import NO_POOL
    from protocols.study.record_study import RecordVotesPlan, record_study
    from protocols.study.terms import Terms
    from protocols.sums.contributions import contribution_sum, said
    from simulations import datasets
    from simulations.datasets.dataset import DatasetRequest
    from simulations.setup.experiment import population_of, units_of
    from simulations.setup.partition import BySite, Iid, partition

    folder = data_dir or os.environ.get("CONCLAVE_DATA")
    data = datasets.load(dataset, DatasetRequest(data_dir=Path(folder) if folder else None, seed=seed))
    sited = data.private_sites is not None and parties is None
    rows = partition(data, parties=None if sited else parties or 4, scheme=BySite() if sited else Iid(), seed=seed)
    wanted = [each.column for each in data.columns] if columns is None else columns.split(",")
    unknown = sorted(set(wanted) - {each.column for each in data.columns})
    if unknown or not wanted:
        known = ", ".join(each.column for each in data.columns)
        raise InvalidInput(f"--columns are {unknown or wanted}; allowed: {known or 'none, as the data are no table'}")
    ends = np.cumsum([each.width for each in data.columns])
    places = [np.arange(end - each.width, end) for each, end in zip(data.columns, ends.tolist(), strict=True)]
    kept = [at for at, each in enumerate(data.columns) if each.column in wanted]
    # As the data set encodes them: a value that it has no feature for cannot be missing.
    features = [counted_feature(data.columns[at], may_miss=data.columns[at].may_miss) for at in kept]
    inputs = np.ascontiguousarray(data.private_inputs[:, np.concatenate([places[at] for at in kept])])
    labels = data.private_labels if by_label else np.zeros_like(data.private_labels)
    names = tuple(f"hospital-{at}" for at in range(len(rows)))
    level = simulated_level(confidentiality, units=2**16, colluders=None, seats=len(rows))
    terms = Terms(
        task="a simulated count",
        class_names=data.class_names if by_label else ("all",),
        label="label" if by_label else "",
        input_shape=(inputs.shape[1],),
        pool_size=1,
        pool_sha256=NO_POOL,
        deadline_s=60.0,
        coordinator="centre",
        ends="2999-12-31",
        features=tuple(features),
    )
    cells = count_cells(terms).blocks
    plan = RecordVotesPlan(
        name=f"{dataset}-count",
        classes=len(terms.class_names),
        unit=unit,
        population=population_of(unit, data, len(rows)),
        queries=cells,
        rule="uniform",
        level=level,
        quorum=len(rows),
        purpose="counts",
    )
    made = record_study(plan, names=names, epsilon=np.full(len(rows), epsilon), delta=np.full(len(rows), delta))
    study = deployed(made, terms)
    weight, classes = round(float(study.weights[0]) * study.units), study.classes
    sums = [
        contribution_sum(
            cells, said(cells, inputs[held], labels[held], classes=classes), units_of(unit, data, held),
            weight_units=weight, classes=classes, mean=True,
        )
        for held in rows
    ]  # fmt: skip
    tally = study.votes.tally(study, np.stack(sums), np.arange(len(rows)))
    noise = drawn_noise(study, seed=seed)(np.ones(len(rows), bool))
    _, noisy = study.released(tally / study.units, noise, predictions=None)
    assert noisy is not None  # a sum is what is released
    counts = counts_of(study, noisy, voted=names)
    click.echo(SIMULATED, err=True)
    click.echo(to_text(counts_json(study, counts, voted=names)) if as_json else counts_csv(counts), nl=False)
