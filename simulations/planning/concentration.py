"""The spread of query difficulty that is assumed when only the teachers' accuracy is known; see predict.py."""

from __future__ import annotations

# Fitted on true labels (fitted_concentration), records spread evenly over parties: 0.76 to 1.2 on three ensembles of
# two classes, 3.3 to 7.7 on three of ten classes; docs/how-to/choose-noise.md. Low is pessimistic.
CONCENTRATION_OF_TWO, CONCENTRATION_OF_MORE = 0.8, 4.0


def default_concentration(classes: int) -> float:
    """The assumed concentration of an ensemble of which only the accuracy is known."""
    return CONCENTRATION_OF_TWO if classes == 2 else CONCENTRATION_OF_MORE
