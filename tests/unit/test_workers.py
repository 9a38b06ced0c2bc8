"""What one worker of the gate runs: all tests of a folder, so that what they share is made once."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]


def test_each_gate_hands_out_folders(pytestconfig, monkeypatch):
    (settings,) = [each for each in pytestconfig.pluginmanager.get_plugins() if hasattr(each, "_ByFolder")]
    scope = settings._ByFolder._split_scope
    assert scope(None, "tests/unit/a/test_b.py::test_c[d/e.md]") == scope(None, "tests/unit/a/test_e.py::test_f")
    assert scope(None, "tests/unit/a/test_b.py::test_c") != scope(None, "tests/unit/test_b.py::test_c")
    made = []
    monkeypatch.setattr(settings, "_ByFolder", lambda *given: made.append(given))
    tasks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["poe"]["tasks"]
    for task in ("test", "unit"):
        words = tasks[task]["cmd"].split()
        config = SimpleNamespace(getvalue=lambda name, words=words: words[words.index(f"--{name}") + 1])
        settings.pytest_xdist_make_scheduler(config, None)
    assert len(made) == 2
