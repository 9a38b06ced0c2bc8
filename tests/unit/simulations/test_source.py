"""What is kept from earlier runs is made anew once the code that decides it has changed."""

import grimp

from simulations.source import OF_RESULTS, source_digest

# They carry messages, read files whose content is in the key, or show what was found.
_DECIDE_NOTHING = ("coordinator.in_process", "party.party", "party.asking.report", "party.data")


def test_kept_results_name_every_package_that_decides_them():
    graph = grimp.build_graph("protocols", "coordinator", "party", "simulations", cache_dir=None)
    imported = graph.find_upstream_modules("simulations.baselines.methods")
    rooms = ("protocols.", "coordinator.", "party.")
    assert all(each.startswith((*OF_RESULTS, *_DECIDE_NOTHING)) for each in imported if each.startswith(rooms))


def test_a_package_without_an_init_file_counts_with_all_its_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = set()
    for name, code in (("plug_in_a", "1"), ("plug_in_b", "2"), ("plug_in_c", "1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "method.py").write_text(code)
        found.add(source_digest(name))
    assert len(found) == 2
