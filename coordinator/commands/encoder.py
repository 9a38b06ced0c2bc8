"""study encoder: an encoder of the pool's kind of records, as one ONNX file."""

from __future__ import annotations

from pathlib import Path

import click

from runtime.cli import EPILOG
from runtime.pasting import say_next


@click.command(epilog=EPILOG)
@click.argument("kind", type=click.Choice(["efficientnet_lite0", "resnet18", "contrastive", "denoising"]))
@click.option(
    "--pool",
    "pool_file",
    type=click.Path(path_type=Path),
    required=True,
    help="Public records, the study's pool: csv, parquet, npy, npz.",
)
@click.option(
    "--draft", type=click.Path(path_type=Path), help="The study: how columns are encoded, and which pool it is."
)
@click.option("--side", type=click.IntRange(32, 512), help="Public weights: pixels that images are resized to [64].")
@click.option("--weights", type=click.Path(path_type=Path), help="resnet18: its weights, as torchvision writes them.")
@click.option("--weights-sha256", help="resnet18: the SHA-256 of that file.")
@click.option("--seed", type=click.IntRange(0), help="contrastive, denoising: of what is drawn [0].")
@click.option("--out", type=click.Path(path_type=Path), default=Path("encoder.onnx"), show_default=True)
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
    else is looked at. With --draft, any other pool than the study's is refused.

    \b
    Examples:
      conclave-coordinator study encoder efficientnet_lite0 --pool pool.npy
      conclave-coordinator study encoder contrastive --pool pool.npy --seed 1 --out encoder.onnx
    """
    import hashlib

    from coordinator.encoders import EncoderChoice, make_encoder
    from coordinator.labelling.pool import check_pool, read_pool
    from coordinator.labelling.study_creation import read_draft, terms_of
    from protocols.errors import InvalidInput
    from protocols.study.file import read_deployed
    from runtime.files import write_atomically

    if out.exists():
        raise InvalidInput(f"{out} exists; allowed: a new file")
    choice = EncoderChoice(kind=kind, side=side, seed=seed, weights=weights, weights_sha256=weights_sha256)
    columns = () if draft is None else read_draft(draft, keys=lambda party: None).terms.features
    pool = read_pool(pool_file, features=columns)
    if draft is not None:
        check_pool(pool, read_deployed(draft, left_out=terms_of(pool)))
    content = make_encoder(pool, choice)
    write_atomically(out, content)
    click.echo(f"{out}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")
    say_next(f"conclave-coordinator study queries DRAFT --pool {pool_file} --features onnx:{out}")
