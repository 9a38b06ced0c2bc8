"""The terms of a study, of which only what records are read by matters to a test."""

from collections.abc import Sequence

from protocols.study.terms import Feature, Terms


def terms_of(features: Sequence[Feature], *, label: str, classes: tuple[str, ...], shape: tuple[int, ...]) -> Terms:
    return Terms(
        task="t",
        class_names=classes,
        label=label,
        input_shape=shape,
        pool_size=1,
        pool_sha256="0" * 64,
        deadline_s=1.0,
        coordinator="c",
        ends="2999-01-01",
        features=tuple(features),
    )
