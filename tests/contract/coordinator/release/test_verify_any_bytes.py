"""Verification of a release in which any byte, file or value is another: a failed check, and never an error."""

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.released import FILES, failed


@settings(max_examples=50)
@given(data=st.data())
def test_one_altered_byte_anywhere_fails(signed, tmp_path_factory, data):
    name = data.draw(st.sampled_from(FILES))
    content = bytearray((signed[2] / name).read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    altered = tmp_path_factory.mktemp("altered") / "release"
    shutil.copytree(signed[2], altered)
    (altered / name).write_bytes(bytes(content))
    assert failed(altered)
    shutil.rmtree(altered)


@pytest.mark.parametrize("name", FILES)
def test_a_release_with_any_file_altered_or_missing_fails(copy, name):
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(bytes(content))
    assert failed(copy)
    (copy / name).unlink()
    assert failed(copy)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 100_000, b"a = " + b"[" * 100_000, b"1" * 10_000]
)
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_any_content_is_a_failed_check_and_never_an_error(signed, copy, name, content):
    (copy / name).write_bytes(content)
    if not name.startswith(("manifest", "model.sig")):
        signed[0].sign_again(copy)
    assert failed(copy)


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=4))
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))


def places(value, path=()):
    """Every path into a JSON value."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


@settings(max_examples=50)
@given(data=st.data())
def test_any_value_anywhere_in_its_json_is_a_failed_check_and_never_an_error(signed, tmp_path_factory, data):
    name = data.draw(
        st.sampled_from(["evidence/ledger.json", "evidence/audit.jsonl", "evidence/frames.jsonl", "privacy.json"])
    )
    lines = (signed[2] / name).read_text().splitlines() if name.endswith("l") else [(signed[2] / name).read_text()]
    chosen = data.draw(st.integers(0, len(lines) - 1))
    value = json.loads(lines[chosen])
    path = data.draw(st.sampled_from(list(places(value))))
    new, at = data.draw(VALUES), value
    if path:
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = new
    else:
        value = new
    layout = {"indent": 2} if name == "privacy.json" else {"sort_keys": True} if name[-1] == "l" else {"indent": 1}
    changed = json.dumps(value, **layout)
    same = lines[chosen].rstrip() == changed
    lines[chosen] = changed
    altered = tmp_path_factory.mktemp("altered") / "release"
    shutil.copytree(signed[2], altered)
    (altered / name).write_text("\n".join(lines) + "\n")
    signed[0].sign_again(altered)
    assert bool(failed(altered)) != same
    shutil.rmtree(altered)
