import numpy as np
import pytest

from protocols.bounds import compositions
from protocols.bounds.label_pairs import PairKind

KIND = PairKind(2)
AT = np.array([0.1, 0.5])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache on disk, and none in memory; the folder of its files."""
    monkeypatch.setenv("CONCLAVE_CACHE", str(tmp_path / "cache"))
    compositions._kept.cache_clear()
    yield compositions.cache_folder()
    compositions._kept.cache_clear()


def computed(monkeypatch):
    """The shifts that are computed from now on."""
    found, compose = [], compositions.compose

    def counting(kind, shift, *, queries):
        found.append(shift)
        return compose(kind, shift, queries=queries)

    monkeypatch.setattr(compositions, "compose", counting)
    return found


def test_a_composition_is_computed_once_and_then_read_from_memory_and_from_disk(folder, monkeypatch):
    seen = computed(monkeypatch)
    first = compositions.composition(KIND, 0.2, queries=10)
    assert compositions.composition(KIND, 0.2, queries=16) is first
    compositions._kept.cache_clear()
    again = compositions.composition(KIND, 0.2, queries=10)
    assert seen == [0.2]
    assert again is not first
    np.testing.assert_array_equal(again.delta(40, AT), first.delta(40, AT))


@pytest.mark.parametrize("damage", [b"", b"x", b"\x00" * 5000], ids=["empty", "short", "zeros"])
def test_a_damaged_file_is_computed_anew_and_replaced(folder, monkeypatch, damage):
    first = compositions.composition(KIND, 0.2, queries=2)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + damage)
    compositions._kept.cache_clear()
    np.testing.assert_array_equal(compositions.composition(KIND, 0.2, queries=2).delta(2, AT), first.delta(2, AT))
    assert path.read_bytes() == whole


def test_a_file_of_another_composition_is_not_taken_for_this_one(folder, monkeypatch):
    compositions.composition(KIND, 0.2, queries=8)
    (one,) = folder.iterdir()
    first = compositions.composition(KIND, 0.3, queries=8).delta(8, AT)
    (other,) = (path for path in folder.iterdir() if path != one)
    other.write_bytes(one.read_bytes())
    compositions._kept.cache_clear()
    np.testing.assert_array_equal(compositions.composition(KIND, 0.3, queries=8).delta(8, AT), first)


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(folder, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("CONCLAVE_CACHE", str(blocked))
    assert compositions.composition(KIND, 0.2, queries=2).depth == 2


def test_the_oldest_files_go_once_there_are_too_many(folder, monkeypatch):
    monkeypatch.setattr(compositions, "_MOST_FILES", 2)
    for shift in (0.2, 0.3, 0.4, 0.5):
        compositions.composition(KIND, shift, queries=1)
    assert len(list(folder.iterdir())) == 2
