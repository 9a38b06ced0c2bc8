"""The label noise of a study in a few words, whatever its law: for tables, errors and hints."""

from __future__ import annotations

from protocols.study.study import Study


def noise_words(study: Study) -> str:
    """`sigma 4.8 votes` for Gaussian noise, `gamma 0.295 per vote` for Laplace noise."""
    if study.gamma is not None:
        return f"gamma {study.gamma:.3g} per vote"
    assert study.sigma is not None, "a mechanism without noise"
    return f"sigma {study.sigma:.4g} votes"


def more_noise(study: Study) -> str:
    """What to change for more noise: "a larger --sigma", or "a smaller --gamma", which is an inverse scale."""
    return "a larger --sigma" if study.gamma is None else "a smaller --gamma"
