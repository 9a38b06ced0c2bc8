"""The sub-command encoder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any  # values of flags, as click gives them

import click

from coordinator.encoders import ENCODERS
from protocols.errors import InvalidInput
from runtime.files import write_atomically
from simulations.exits import EXIT_CODES
from simulations.options import data_flags, host_from, reporter_from, settings_from


@click.command(name="encoder", epilog=EXIT_CODES)
@click.argument("kind", type=click.Choice(list(ENCODERS)))
@data_flags
@click.option("--side", type=click.IntRange(32, 512), help="Public weights: pixels that images are resized to [64].")
@click.option("--encoder-weights", type=click.Path(path_type=Path), help="resnet18: as torchvision writes them.")
@click.option("--weights-sha256", help="resnet18: the SHA-256 of that file.")
@click.option("--encoder-seed", type=click.IntRange(0), help="Seed of an encoder that draws random numbers [0].")
@click.option("--out", default="encoder.onnx", show_default=True, help="The file to write.", type=click.Path())
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def encoder_flags(kind: str, out: str, **flags: Any) -> None:
    """Make an encoder of a data set's public pool, of public weights or trained on it, for --features onnx:FILE.

    Give the settings of the run that have to do with its data: the pool depends on them. Nothing but the pool is used.

    \b
    Example:
      conclave-simulate encoder contrastive --dataset digits --out digits.onnx
    """
    from coordinator.encoders import encoder_maker
    from simulations.stages.inputs import load_dataset

    if Path(out).exists():
        raise InvalidInput(f"--out {out} exists; allowed: a new file")
    make = encoder_maker(
        kind,
        side=flags.pop("side"),
        seed=flags.pop("encoder_seed"),
        weights=flags.pop("encoder_weights"),
        weights_sha256=flags.pop("weights_sha256"),
    )
    reporter = reporter_from(flags)
    pool = load_dataset(
        settings_from(flags), host_from({"engine": "in_process", "workers": None, **flags})
    ).public_inputs
    with reporter.stage(f"encoder {kind}, {len(pool)} public records") as stage:
        content = make(pool)
        stage.result = f"{len(content)} bytes"
    write_atomically(Path(out), content)
    click.echo(f"{out}: SHA-256 {hashlib.sha256(content).hexdigest()}")
