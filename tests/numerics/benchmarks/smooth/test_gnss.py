"""GNSS: vectors, divergences by quadrature, every pair of real neighbours, what is released and what stays private."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.papers.paper import printed_figures
from benchmarks.sanitised import best_parameters, best_sigma_ss, corrected_cost, understated_published_cost
from benchmarks.smooth import VoteSetting, distance_bounds, gnmax_rdp, smooth_sensitivity

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "gnss.json").read_text())
VOTES = Path(os.environ.get("CONCLAVE_DATA", "")) / "pate_votes" / "pate2018"
needs_data = pytest.mark.skipif(not VOTES.is_dir(), reason="CONCLAVE_DATA has no pate_votes")
PRINTED = {row["dataset"]: row for row in printed_figures("pate2018")["rows"] if "release" in row}


def closed_form(mean, std, other_mean, other_std, order):
    """The same in closed form (Gil, Alajaji, Linder 2013), vectorised; infinite where it diverges."""
    mixed = (1 - order) * std**2 + order * other_std**2
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = order * (mean - other_mean) ** 2 / (2 * mixed)
        scale = (np.log(mixed) / 2 - (1 - order) * np.log(std) - order * np.log(other_std)) / (1 - order)
    return np.where(mixed > 0, shift + scale, np.inf)


@pytest.mark.parametrize("row", VECTORS["checks"], ids=lambda row: f"{row['order']}-{row['lam_beta']}")
def test_costs_equal_the_reference_and_cover_its_worst_pair(row):
    arguments = {"order": row["order"], "beta": row["lam_beta"] / row["order"], "sigma_ss": row["sigma_ss"]}
    assert corrected_cost(**arguments) == pytest.approx(row["corrected"], rel=1e-12)
    assert understated_published_cost(**arguments) == pytest.approx(row["coded"], rel=1e-12)
    assert corrected_cost(**arguments) >= row["worst_exact_over_real_neighbours"]


@pytest.mark.parametrize("index", [0, 3, 8, 11, 13, 14, 19])
def test_no_pair_of_real_neighbours_costs_more_and_the_worst_is_the_references(index):
    row = VECTORS["checks"][index]
    teachers, classes, order, beta = row["M"], row["m"], row["order"], row["lam_beta"] / row["order"]
    setting = VoteSetting(
        sigma=row["sigma_gnmax"], order=order, classes=classes, weights=np.ones(teachers), sensitivity=1
    )
    found = [
        counts
        for counts in itertools.product(range(teachers, -1, -1), repeat=classes)
        if sum(counts) == teachers and list(counts) == sorted(counts, reverse=True)
    ]
    histograms, one = np.array(found, float), np.ones(1)
    f = np.array([gnmax_rdp(h[None], setting, answered=one).for_research() for h in histograms])
    bounds = [distance_bounds(h[None], setting, answered=one) for h in histograms]
    std = row["sigma_ss"] * np.array([smooth_sensitivity(bound, beta=beta).for_research()[0] for bound in bounds])
    first, second = np.nonzero(np.abs(histograms[:, None] - histograms[None]).sum(axis=2) == 2)
    exact = closed_form(f[first], std[first], f[second], std[second], order)
    assert exact.max() <= corrected_cost(order=order, beta=beta, sigma_ss=row["sigma_ss"])
    assert exact.max() == pytest.approx(row["worst_exact_over_real_neighbours"], rel=1e-9)


def test_the_published_cost_is_below_a_real_pair_of_neighbours():
    understated = [row for row in VECTORS["checks"] if row["coded"] < row["worst_exact_over_real_neighbours"]]
    assert len(understated) >= 8
    for row in understated:
        published = understated_published_cost(
            order=row["order"], beta=row["lam_beta"] / row["order"], sigma_ss=row["sigma_ss"]
        )
        assert published < row["worst_exact_over_real_neighbours"]


@pytest.mark.parametrize("name", list(PRINTED))
def test_the_published_rows_cost_what_the_reference_says(name):
    row, expected = PRINTED[name], VECTORS["corrected"][f"published_{name}"]
    given, epsilon = row["release"], row.get("table2_eps", row["eps"])
    order, beta = row["order"], given["order_times_beta"] / row["order"]
    assert beta == pytest.approx(given["beta"], abs=6e-5)
    cost = corrected_cost(order=order, beta=beta, sigma_ss=given["sigma_ss"])
    assert cost == pytest.approx(expected["true_gnss_at_published_params"], rel=1e-9)
    assert epsilon + cost == pytest.approx(expected["sanitised_true"], rel=1e-9)
    sigma = best_sigma_ss(order=order, beta=beta, sensitivity=given["smooth_sensitivity"])
    assert sigma == pytest.approx(expected["reopt_sigma"], rel=1e-9)
    again = epsilon + corrected_cost(order=order, beta=beta, sigma_ss=sigma)
    assert again == pytest.approx(expected["reopt_sanitised"], rel=1e-9)
    assert sigma * given["smooth_sensitivity"] == pytest.approx(expected["reopt_std"], rel=1e-9)


@pytest.mark.parametrize("votes", ["mnist18", "adult18"])
def test_the_best_noise_for_a_given_sensitivity_equals_the_reference(votes):
    entry = VECTORS["corrected"][votes]
    for kind, published in (("code", True), ("corrected_opt", False)):
        row, order = entry[kind], entry["order"]
        beta = row["lam_beta"] / order
        sigma = best_sigma_ss(order=order, beta=beta, sensitivity=row["SS"], published=published)
        assert sigma == pytest.approx(row["sigma"], rel=1e-9)
        assert sigma * row["SS"] == pytest.approx(row["std"], rel=1e-9)
        true = row["gnss_true"] if published else row["gnss"]
        assert corrected_cost(order=order, beta=beta, sigma_ss=sigma) == pytest.approx(true, rel=1e-9)
        if published:
            coded = understated_published_cost(order=order, beta=beta, sigma_ss=sigma)
            assert coded == pytest.approx(row["gnss_coded"], rel=1e-9)


@needs_data
@pytest.mark.parametrize(
    ("votes", "queries", "threshold", "sigma1", "order", "name"),
    [("mnist", 640, 200, 150, 14.0, "MNIST"), ("adult", 1500, 300, 200, 15.5, "Adult")],
)
def test_the_authors_search_on_their_votes_finds_the_parameters_they_printed(
    votes, queries, threshold, sigma1, order, name
):
    counts = np.load(VOTES / f"{votes}_250_teachers.npy")[:queries]
    setting = VoteSetting(sigma=40, order=order, classes=counts.shape[1], weights=np.ones(250), sensitivity=1)
    bounds = distance_bounds(counts, setting, answered=ndtr((counts.max(axis=1) - threshold) / sigma1))
    found = best_parameters(bounds, order=order, betas=np.arange(0.3, 0.495, 0.01) / order, published=True)
    printed = PRINTED[name]["release"]
    assert found.for_research().beta * order == pytest.approx(printed["order_times_beta"], abs=1e-9)
    assert found.for_research().sigma_ss == pytest.approx(printed["sigma_ss"], abs=0.006)
    ours = best_parameters(bounds, order=order, betas=np.arange(0.05, 0.495, 0.005) / order).for_research()
    assert ours.beta * order < printed["order_times_beta"]
    assert ours.cost < corrected_cost(order=order, beta=printed["beta"], sigma_ss=printed["sigma_ss"]) / 2
