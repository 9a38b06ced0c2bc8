"""The kinds of models that private inference computes, so that a record can be asked about without being shown."""

from __future__ import annotations

from party.teachers.teacher import PRIVATE

# A node answers with those of PRIVATE; cnn is computed by the same protocol at a coarser precision, which no node
# offers.
KINDS = (*PRIVATE, "cnn")
