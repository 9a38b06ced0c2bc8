"""study encoder, features: what is made of the pool's kind of records, as a file that is handed round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coordinator.encoders import ENCODERS
from runtime.cli import EPILOG
from runtime.printing import say_next

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy import ndarray

    from protocols.study.terms import Feature


@click.command(epilog=EPILOG)
@click.argument("kind", type=click.Choice(list(ENCODERS)))
@click.option(
    "--pool",
    "pool_file",
    type=click.Path(path_type=Path),
    required=True,
    help="Public records, the study's pool: csv, jsonl, parquet, npy, npz.",
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

    from coordinator.encoders import encoder_maker
    from protocols.errors import InvalidInput
    from runtime.files import write_atomically

    if out.exists():
        raise InvalidInput(f"{out} exists; allowed: a new file")
    make = encoder_maker(kind, side=side, seed=seed, weights=weights, weights_sha256=weights_sha256)
    pool, _ = _pool(pool_file, draft)
    content = make(pool)
    write_atomically(out, content)
    click.echo(f"{out}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")
    say_next(f"conclave-coordinator study queries DRAFT --pool {pool_file} --features onnx:{out}")


@click.command(epilog=EPILOG)
@click.option(
    "--pool", "pool_file", type=click.Path(path_type=Path), required=True, help="Public records, the study's pool."
)
@click.option("--draft", type=click.Path(path_type=Path), help="The study: how columns are encoded, and its pool.")
@click.option(
    "--features",
    "named",
    required=True,
    help="raw | hog | pca:N | projection:N | lsa:N | onnx:FILE, then +standard, +pca:N or +projection:N.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of projections.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("features.npz"), show_default=True)
def features(pool_file: Path, draft: Path | None, named: str, seed: int, out: Path) -> None:
    """Make a file of features that hospitals' teachers may learn from, and print its digest.

    Only the pool is looked at. With --draft, any other pool than the study's is refused.

    \b
    Example:
      conclave-coordinator study features --pool pool.npy --features hog+standard+pca:64
    """
    from coordinator.queries.features import features_for
    from protocols.errors import InvalidInput
    from runtime.files import write_atomically

    if out.exists():
        raise InvalidInput(f"{out} exists; allowed: a new file")
    pool, columns = _pool(pool_file, draft)
    made = features_for(pool, named, columns=columns, seed=seed)
    write_atomically(out, made.to_bytes())
    click.echo(f"{out}: {made.width} features of a record, of records of shape {made.input_shape}")
    click.echo(f'features_sha256 = "{made.digest}"')


def _pool(pool_file: Path, draft: Path | None) -> tuple[Float32[ndarray, "pool ..."], tuple[Feature, ...]]:
    """The pool and its columns. Raises InvalidInput for another pool than the draft's."""
    from coordinator.labelling.pool import check_pool, read_pool
    from coordinator.labelling.study_creation import read_draft, terms_of
    from protocols.study.file import read_deployed

    columns = () if draft is None else read_draft(draft, keys=lambda party: None).terms.features
    pool = read_pool(pool_file, features=columns)
    if draft is not None:
        check_pool(pool, read_deployed(draft, left_out=terms_of(pool)))
    return pool, columns
