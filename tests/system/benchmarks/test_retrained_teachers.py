"""Records drawn and replaced, and the teachers trained again without and with them."""

import numpy as np
import pytest

from benchmarks.typical_case import Draw, draw, retrain
from party.teachers.teacher import TeacherKind
from protocols.errors import InvalidInput
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from simulations.setup.partition import parse_partition, partition, teacher_shards

DATASET = datasets.load("digits", DatasetRequest(seed=0, private_size=240, public_size=200))
HOLDINGS = partition(DATASET, parties=6, scheme=parse_partition("iid"), seed=0)
SHARDS = [teacher_shards(records, None, teachers=1, seed=0) for records in HOLDINGS]
VOTES = np.random.default_rng(0).integers(10, size=(6, 1, 200)).astype(np.int16)


def test_the_other_record_is_drawn_from_the_population_that_was_named():
    held = np.concatenate(SHARDS[2])
    for population, inside in (("federation", False), ("party", True)):
        drawn = draw(SHARDS, 2, 50, population, seed=0)
        assert all((each.instead in held) == inside for each in drawn)
        assert all(SHARDS[2][each.teacher][each.place] != each.instead for each in drawn)
        assert len({each.place for each in drawn}) > 10


class RoundingKind(TeacherKind):
    """Teachers that cast the votes given, a number of them otherwise; stacked as on a GPU, or not."""

    def __init__(self, votes, *, otherwise, stacks):
        self.votes, self.otherwise, self.stacked = votes, otherwise, stacks

    @property
    def stacks(self):
        return self.stacked

    def fit(self, shards, *, classes, seeds):
        return [self] * len(shards)

    def load(self, path):
        raise AssertionError("nothing is loaded")

    def predict(self, queries):
        votes = self.votes[: len(queries)].astype(np.int64)
        votes[: self.otherwise] = (votes[: self.otherwise] + 1) % 10
        return votes


@pytest.mark.parametrize(
    ("stacks", "otherwise", "refused"), [(False, 0, False), (False, 1, True), (True, 2, False), (True, 3, True)]
)
def test_only_the_rounding_of_a_gpu_may_change_votes_without_a_record(stacks, otherwise, refused):
    kind = RoundingKind(VOTES[0, 0], otherwise=otherwise, stacks=stacks)
    told = []

    def again():
        drawn = [Draw(0, 0, int(SHARDS[1][0][0]))] * 3
        return retrain(kind, DATASET, SHARDS, 0, drawn, VOTES, np.arange(200), seed=0, on_done=told.append)

    if refused:
        with pytest.raises(InvalidInput, match=f"casts {otherwise} of 200 votes"):
            again()
    else:
        assert ((again() != VOTES[0, 0]).sum(axis=1) == otherwise).all()
    assert told[-1] == 3
