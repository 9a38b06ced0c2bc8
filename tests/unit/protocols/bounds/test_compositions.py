import numpy as np
import pytest

from protocols.array_files import array_bytes
from protocols.bounds import compositions
from protocols.bounds.label_pairs import PairKind

KIND = PairKind(2)
AT = np.array([0.1, 0.5])
# delta at epsilon 0.2 and 1 of four labels at shift 0.25.
EXPECTED = [0.17285866768431088, 0.022800355528501813]


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


def altered(path, rows):
    """Writes rows under a valid digest, as somebody would who can write there."""
    body = array_bytes(rows)
    path.write_bytes(compositions._digest(path, body) + body)
    compositions._kept.cache_clear()


@pytest.mark.parametrize(
    "alter", [np.zeros_like, lambda rows: rows * np.nan, lambda rows: rows[:, ::-1], lambda rows: rows / 2]
)
def test_values_that_no_composition_has_are_not_believed_whatever_their_digest(folder, alter):
    first = compositions.composition(KIND, 0.2, queries=2)
    (path,) = folder.iterdir()
    altered(path, np.ascontiguousarray(alter(first.rows)))
    np.testing.assert_array_equal(compositions.composition(KIND, 0.2, queries=2).delta(2, AT), first.delta(2, AT))


@pytest.mark.parametrize("shared", ["file", "folder"])
def test_what_others_can_write_is_not_read(folder, monkeypatch, shared):
    compositions.composition(KIND, 0.2, queries=2)
    (path,) = folder.iterdir()
    (path if shared == "file" else folder).chmod(0o777)
    compositions._kept.cache_clear()
    seen = computed(monkeypatch)
    compositions.composition(KIND, 0.2, queries=2)
    assert seen == [0.2]


def test_the_numbers_are_those_of_this_version_of_the_cache():
    """Where they change, VERSION must change with them."""
    made = compositions.compose(PairKind(3), 0.25, queries=4)
    assert compositions.TABLE_VERSION == 2
    np.testing.assert_allclose(made.delta(4, np.array([0.2, 1.0])), EXPECTED, rtol=1e-9)


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
