import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from protocols.errors import StorageFailed
from simulations.plots.figures import accuracy_bars, budget_groups, drawings, epsilon_curves
from simulations.plots.style import (
    PAPER,
    _fold,
    inline_svg,
    pdf_bytes,
    spread_labels,
    svg_text,
    write_figure,
    write_figures,
)
from simulations.plots.sweep import sweep_drawings
from simulations.results.files import summary
from tests.harness.refusals import refuses
from tests.harness.stored_runs import stored_run, with_students

PNG = b"\x89PNG\r\n\x1a\n"


def words_of(figure) -> str:
    """All text of a figure."""
    return " ".join(
        "".join(text.itertext()) for text in ElementTree.fromstring(svg_text(figure)).iter() if "text" in text.tag
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return stored_run(tmp_path_factory.mktemp("votes"), seeds=(0, 1, 2))


@pytest.fixture(scope="module")
def drawn(result):
    return drawings(result, summary(result))


def test_every_figure_of_a_run_is_written_as_svg_and_png(drawn, tmp_path):
    paths = write_figures(drawn, tmp_path)
    assert [path.name for path in paths] == [
        f"{name}.{kind}"
        for name in ("baselines", "epsilon_spent", "budget_used", "teachers")
        for kind in ("svg", "png")
    ]
    for path in paths:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(PNG)
        else:
            assert ElementTree.fromstring(content).tag.endswith("svg")
    assert sorted(tmp_path.rglob("*")) == sorted([tmp_path / "figures", *paths])


def test_the_same_run_gives_the_same_bytes(result, drawn):
    again = drawings(result, summary(result))[1]
    assert drawn[1].svg == again.svg
    assert inline_svg(drawn[1]) == inline_svg(again)


def test_a_figure_that_cannot_be_written_is_a_storage_error(drawn, tmp_path):
    (tmp_path / "figures").write_text("a file, where the folder should be")
    with refuses(StorageFailed, "figures"):
        write_figure(drawn[0].figure, tmp_path / "figures" / "baselines")


def test_groups_are_those_of_the_summary(result):
    figures = summary(result)
    groups = budget_groups(result, figures["exhausted_first"])
    assert groups.size.tolist() == [group["size"] for group in figures["groups"]]
    assert groups.epsilon.tolist() == [group["budget"] for group in figures["groups"]]
    assert groups.weight.tolist() == [group["weight"] for group in figures["groups"]]
    names = [seat.party for seat in result.study.roster]
    out = {groups.member[names.index(name)] for name in figures["exhausted_first"]}
    assert set(np.flatnonzero(groups.exhausted_first).tolist()) == out


@pytest.mark.parametrize("view", ["label", "histogram"])
def test_curves_end_at_the_ledgers_of_the_first_seed_and_never_pass_the_cap(tmp_path, view):
    accountant = "gaussian" if view == "label" else "gaussian_dp"
    run = stored_run(tmp_path, stop="drop-exhausted", weights="uniform", view=view, accountant=accountant)
    groups = budget_groups(run, [])
    answers, epsilon = epsilon_curves(run, groups, np.arange(len(groups)))
    filters, seed = run.study.budgets, run.seeds[0]
    ends = filters.epsilon_of(seed.labelling.spent)
    assert len(seed.labelling.batches) > 1
    assert answers[0] == 0
    assert answers[-1] == len(seed.answered)
    assert (np.diff(answers) >= 0).all()
    assert (np.diff(epsilon, axis=0) >= 0).all()
    for group in range(len(groups)):
        assert epsilon[-1, group] == pytest.approx(ends[groups.member == group].max(), rel=1e-12)
        assert epsilon[:, group].max() <= filters.epsilon_guaranteed[groups.member == group].min()


@pytest.mark.parametrize(
    ("parties", "classes", "shape"),
    [
        (1, 2, {"budgets": "8", "mechanism": "gnmax", "sigma": 4.0, "weights": "uniform"}),
        (300, 150, {"budgets": "2"}),
        (12, 5, {"budgets": "3:0.5,4:0.5", "teachers": 3, "unit": "party", "dropout": 0.3}),
        (40, 4, {"labels": None}),
        (40, 4, {"baselines": False}),
        # Nothing reaches the threshold, so nothing is answered.
        (
            40,
            40,
            {
                "mechanism": "confident_gnmax",
                "threshold": 40.0,
                "sigma_threshold": 2.0,
                "sigma": 40.0,
                "budgets": "10",
                "weights": "uniform",
            },
        ),
    ],
)
def test_figures_cope_with_every_shape_of_run(tmp_path, parties, classes, shape):
    run = stored_run(tmp_path, parties=parties, classes=classes, pool=120, **shape)
    for drawing in drawings(run, summary(run)):
        wide, narrow = ElementTree.fromstring(f"<p>{inline_svg(drawing)}</p>")
        assert float(wide.get("viewBox").split()[2]) > 400
        assert float(narrow.get("viewBox").split()[2]) < 300
        assert drawing.alt
        assert "nan" not in drawing.alt + drawing.caption


def test_intervals_are_drawn_over_seeds_and_their_absence_is_said(result, tmp_path):
    several = summary(with_students(result, [0.8, 0.85, 0.9]))
    bars = {bar.words: bar for bar in accuracy_bars(several)}
    assert bars["student, on test data"].value == pytest.approx(0.85)
    # Student's t with two degrees of freedom: 4.3027 * 0.05 / sqrt(3).
    assert bars["student, on test data"].half == pytest.approx(0.12421, abs=1e-5)
    assert bars["all data pooled (without privacy)"].value == 0.98
    assert "95 % interval over 3 seeds" in words_of(drawings(result, several)[0].figure)
    single = stored_run(tmp_path)
    assert "one seed: no interval" in words_of(drawings(single, summary(single))[0].figure)


def test_an_inline_figure_refers_to_nothing_outside_itself(drawn):
    inline = [inline_svg(drawing) for drawing in drawn]
    for svg in inline:
        assert "http" not in svg
        assert "#005a9e" not in svg
        assert 'role="img" aria-label="' in svg
        known = set(re.findall(r'\bid="([^"]*)"', svg))
        assert set(re.findall(r'href="#([^"]*)"', svg) + re.findall(r"url\(#([^)]*)\)", svg)) <= known
    everywhere = [name for svg in inline for name in re.findall(r'\bid="([^"]*)"', svg)]
    assert len(everywhere) == len(set(everywhere))


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(-50, 50)), st.floats(0.01, 5))
def test_spread_labels_keep_their_order_and_their_distance(positions, gap):
    moved = spread_labels(positions, gap=gap)
    order = np.argsort(positions, kind="stable")
    assert (np.diff(moved[order]) >= gap - 1e-9).all()
    assert moved.mean() == pytest.approx(positions.mean(), abs=1e-9)


def sweep_table(**more):
    """A table of intervals: two rules at three budgets."""
    rows = [
        {"weights": rule, "budgets": f"{epsilon}", "answered": answers * epsilon, "answered_low": answers * epsilon - 2,
         "answered_high": answers * epsilon + 2, "note": "", **more}
        for rule, answers in (("uniform", 10.0), ("exhaustive", 30.0))
        for epsilon in (1.0, 2.0, 4.0)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def swept_axes(table, *varied):
    (drawing,) = sweep_drawings(table, varied or ("weights", "budgets"), covered="They cover it.")
    return drawing.figure.axes


def test_a_sweep_joins_numbers_with_a_band_and_a_line_for_each_value_of_the_rest():
    (axes,) = swept_axes(sweep_table())
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert lines["exhaustive"].get_xdata().tolist() == [1.0, 2.0, 4.0]
    assert lines["exhaustive"].get_ydata().tolist() == [30.0, 60.0, 120.0]
    assert lines["uniform"].get_ydata().tolist() == [10.0, 20.0, 40.0]
    assert "budget" in axes.get_xlabel()
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (8.0, 42.0)
    # On a telephone every name stays.
    (axes,) = swept_axes(sweep_table().iloc[::3], "weights")
    _fold(axes.figure)
    assert [each.get_text() for each in axes.get_xticklabels()] == ["uniform", "exhaustive"]


def test_a_figure_for_a_paper_fits_a_column_and_carries_its_fonts():
    # Settings of one study are one line.
    table = pd.concat([sweep_table(), sweep_table()[:3].assign(weights="proportional")])
    rules = {"uniform\n= proportional", "exhaustive"}
    (drawing,) = sweep_drawings(table, ("weights", "budgets"), covered="", look=PAPER)
    pdf, svg = pdf_bytes(drawing.figure, look=PAPER), drawing.svg
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", pdf)[1] == b"237.6"  # 3.3 inches
    assert 'width="237.6pt"' in svg
    assert "<text" not in svg
    (axes,) = drawing.figure.axes
    assert axes.get_title(loc="left") == ""
    drawing.figure.draw_without_rendering()
    for part in (axes.yaxis.label, axes.xaxis.label, *drawing.figure.legends):
        seen = part.get_window_extent()
        assert np.clip(seen.get_points(), 0, drawing.figure.bbox.max).tolist() == seen.get_points().tolist(), part
    # Grey or not, no two lines look alike.
    looks = {(line.get_linestyle(), line.get_marker()) for line in axes.get_lines() if line.get_label() in rules}
    assert len(looks) == len(rules) == 2
