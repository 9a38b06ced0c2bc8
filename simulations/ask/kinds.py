"""The kinds of models that private inference can compute, so that a record is labelled without being shown."""

from __future__ import annotations

from party.teachers.teacher import PRIVATE

# A node answers with the kinds in PRIVATE; the same protocol computes cnn at a coarser precision, which no node offers.
KINDS = (*PRIVATE, "cnn")
