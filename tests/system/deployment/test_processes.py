"""Real processes on loopback that are killed again and again: the study ends by itself and every promise holds."""

import random
from collections import Counter

import pytest

from tests.harness.kills import labelled

KILLS = 8


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_processes_that_are_killed_at_any_moment_lose_nothing_and_the_study_ends_by_itself(tmp_path):
    done = Counter[str]()
    labelled(tmp_path, "clear", KILLS, random.Random(), done, pool=60)
    assert min(done["clear: centre"], done["clear: hospital"]) > 0
    assert done["clear: batches"] > KILLS
