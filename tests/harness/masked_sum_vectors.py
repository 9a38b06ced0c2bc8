"""The vector of a masked sum (docs/explanation/masked-sums.md), from the code under test.

python tests/harness/masked_sum_vectors.py writes it.
"""

import json
from pathlib import Path

import numpy as np

from protocols.levels.secure_sum.dealing import Dealing
from protocols.levels.secure_sum.wire import keys_statement, masked_statement, survivors_statement
from tests.harness.sum_parties import Sum, make_context

FILE = Path(__file__).parents[1] / "vectors" / "masked_sums.json"
ABOUT = (
    "One masked sum of six members, of which member 4 leaves before its masked values; see "
    "docs/explanation/masked-sums.md. Bytes are in hexadecimal, arrays in the order in which they travel."
)
GONE = 4
VALUES = np.arange(18, dtype=np.int64).reshape(6, 3) - 9


def vector() -> dict[str, object]:
    """All that members send in one sum, and what they derive it from."""
    context = make_context(6, 1, 1, cells=3)
    running = Sum(context, VALUES, absent={"mask": (GONE,)})
    opened = running.run()
    members, said, parties = running.members, running.replies, range(context.parties)
    dealings = []
    for index in parties:
        blinding, sealed, commitments, answers = said["share"][index][:4]
        keys = said["advertise"][index][0].tobytes()
        dealing = Dealing(blinding.tobytes(), sealed, commitments, answers)
        arrays = {"blinding": blinding, "sealed": sealed, "commitments": commitments, "answers": answers}
        statement = dealing.statement(context, index, keys)
        dealings.append(
            {name: array.tobytes().hex() for name, array in arrays.items()} | {"statement": statement.hex()}
        )

    def sent(step: str, place: int) -> list[str]:
        return [said[step][index][place].tobytes().hex() if index in said[step] else "" for index in parties]

    about = context.mask_context(running.shared.present)
    return {
        "about": ABOUT,
        "study": context.study.hex(),
        "run": context.run.hex(),
        "batch": context.batch.hex(),
        "members": list(context.members),
        "dropouts": context.dropouts,
        "colluders": context.colluders,
        "cells": context.cells,
        "bits": context.bits,
        "digest": context.digest.hex(),
        "threshold": context.threshold,
        "neighbours": [context.graph.neighbours(index).tolist() for index in parties],
        "batch_secrets": [member.batch_secret.hex() for member in members],
        "values": VALUES.tolist(),
        "keys": sent("advertise", 0),
        "keys_statements": [keys_statement(context.digest, at, said["advertise"][at][0]).hex() for at in parties],
        "dealings": dealings,
        "combined": sent("check", 1),
        "masked": sent("mask", 0),
        "masked_statements": [
            masked_statement(context.digest, index, about).hex() if index != GONE else "" for index in parties
        ],
        "survivors_statement": survivors_statement(
            context.digest, running.shared.present, running.masked.present
        ).hex(),
        "seeds": sent("unmask", 0),
        "shares": sent("unmask", 1),
        "sums": opened.sums.tolist(),
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(vector(), indent=1) + "\n")
