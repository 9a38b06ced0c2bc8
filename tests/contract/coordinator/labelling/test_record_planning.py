"""What an operator's commands make of a draft in which records vote: queries, noise, weights, and a stored study."""

import hashlib
import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

from coordinator.commands.group import run_command
from coordinator.connection.open_study import check_askable
from coordinator.labelling.study_creation import plan_count, plan_records, read_draft, study_template, write_pool
from coordinator.queries.choice import QueryChoice
from coordinator.queries.questions import in_order
from protocols.errors import InvalidInput
from protocols.study.deployed import deployed
from protocols.study.file import read_deployed, write_study
from protocols.study.levels import Clear
from protocols.study.queries_file import read_blocks
from runtime.exits import Exit
from tests.harness.deployed_records import POOL, draft, record_study_of, write_queries
from tests.harness.homes import study_file
from tests.harness.operators import make_home
from tests.harness.refusals import refuses


def test_the_noise_is_the_least_that_every_budget_affords_to_five_digits():
    study, queries = record_study_of()
    unspent = np.zeros(3, dtype=np.int64)
    assert (study.budgets.affordable(unspent, limit=1) == 1).all()
    less = study.voting(sigma=study.votes.sigma * 0.9998)
    assert (less.budgets.affordable(unspent, limit=1) == 0).any()
    assert (queries.rows, queries.filled) == (study.votes.queries, study.votes.votes) == (8, 4)
    assert study.terms.pool_size == len(POOL)


def test_what_is_planned_keeps_what_the_draft_calls_a_hospital():
    first, *others = draft().roster
    drafted = replace(draft(), roster=(replace(first, display_name="Klinik Süd"), *others))
    made = plan_records(drafted, POOL, choice=QueryChoice(), rule="uniform").study.roster
    assert [each.display_name for each in made[:2]] == ["Klinik Süd", None]


def test_weights_follow_the_budgets_by_the_rule():
    made = draft()
    roster = tuple(replace(seat, epsilon=epsilon) for seat, epsilon in zip(made.roster, (1.0, 2.0, 1.0), strict=True))
    unequal = replace(made, roster=roster)
    by_rule = {
        rule: plan_records(unequal, POOL, choice=QueryChoice(), rule=rule).study
        for rule in ("exhaustive", "proportional", "uniform")
    }
    assert by_rule["uniform"].weights.tolist() == [1, 1, 1]
    for rule in ("exhaustive", "proportional"):
        first, second, third = by_rule[rule].weights
        assert first == third < second
    assert by_rule["exhaustive"].mechanism.label_sigma < by_rule["uniform"].mechanism.label_sigma


def test_the_command_writes_queries_and_a_whole_study_that_create_stores(tmp_path, capsys):
    home = make_home(tmp_path)
    at = ["--home", str(home.folder)]
    file, pool = study_file(tmp_path, draft(), "draft.toml"), tmp_path / "pool.npy"
    write_pool(pool, POOL)
    out, whole = tmp_path / "queries.npz", tmp_path / "study.toml"
    made = ["study", "queries", str(file), "--pool", str(pool), "--out", str(out), "--complete", str(whole)]
    made += ["--record-queries", "columns"]
    assert run_command([*made, *at]) == 0
    said, beside = capsys.readouterr()
    assert f"next: conclave-coordinator study create {shlex.join(at)} {whole} --pool {pool} --queries {out}" in beside
    study = read_deployed(whole)
    assert study == record_study_of()[0]
    for line in (
        "queries = 8", "votes = 4", f'queries_sha256 = "{study.votes.queries_sha256}"',
        f"sigma = {study.mechanism.label_sigma}", "# hospital-0: weight = 1.0",
    ):  # fmt: skip
        assert line in said.splitlines()
    assert run_command([*made, "--json", *at]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["queries_sha256"] == study.votes.queries_sha256
    create = ["study", "create", str(whole), "--pool", str(pool)]
    assert run_command([*create, *at]) == 3
    assert "--queries is missing" in capsys.readouterr().err
    assert run_command([*create, "--queries", str(out), *at]) == 0
    assert "conclave-party approve study.toml --queries queries.npz" in capsys.readouterr().out
    assert read_blocks(home.study("test") / "queries.npz", study).digest == study.votes.queries_sha256


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--nearest", "2"], "nearest is 2; allowed with record_queries columns or clusters:N only"),
        (["--record-queries", "clusters:4", "--bins", "3"], "bins is 3; allowed with record_queries columns only"),
    ],
)
def test_flags_without_effect_are_refused_before_a_file_is_written(tmp_path, capsys, flags, words):
    write_pool(tmp_path / "pool.npy", POOL)
    command = ["study", "queries", str(study_file(tmp_path, draft())), "--pool", str(tmp_path / "pool.npy")]
    assert run_command([*command, "--out", str(tmp_path / "queries.npz"), *flags]) == 3
    assert words in capsys.readouterr().err
    assert not (tmp_path / "queries.npz").exists()


@pytest.mark.parametrize(("epsilon", "flags", "twice"), [
    (20.0, [], True), (20.0, ["--no-residuals"], False), (0.1, [], False), (0.1, ["--residuals"], True),
])  # fmt: skip
def test_a_large_budget_for_a_small_pool_has_units_asked_twice_unless_it_is_said(tmp_path, epsilon, flags, twice):
    write_pool(tmp_path / "pool.npy", POOL)
    whole, file = tmp_path / "whole.toml", study_file(tmp_path, draft(epsilon=epsilon))
    command = ["study", "queries", str(file), "--pool", str(tmp_path / "pool.npy"), "--complete", str(whole)]
    assert run_command([*command, "--out", str(tmp_path / "queries.npz"), *flags]) == 0
    assert read_deployed(whole).votes.residuals == twice
    file = study_file(tmp_path, draft(epsilon=epsilon, residuals=True))
    refused = Exit.INVALID_INPUT if "--no-residuals" in flags else 0
    assert run_command([*command, "--out", str(tmp_path / "again.npz"), *flags]) == refused


def test_the_operator_is_warned_of_noise_that_hides_the_votes(tmp_path, capsys):
    home = make_home(tmp_path)
    file, pool = study_file(tmp_path, draft(epsilon=0.02), "draft.toml"), tmp_path / "pool.npy"
    write_pool(pool, POOL)
    out, whole = str(tmp_path / "queries.npz"), str(tmp_path / "study.toml")
    for command in (
        ["queries", str(file), "--pool", str(pool), "--out", out, "--complete", whole],
        ["create", whole, "--pool", str(pool), "--queries", out],
    ):
        assert run_command(["study", *command, "--home", str(home.folder)]) == 0
        assert "warning: the sum is at most 300 votes long, and the noise on each of its" in capsys.readouterr().err


@pytest.mark.parametrize("findings", [(), ("effusion", "oedema", "nodule")])
def test_the_template_is_a_draft_of_which_queries_are_made(tmp_path, findings):
    file = tmp_path / "draft.toml"
    file.write_text(study_template("record", findings))
    read = read_draft(file, keys=lambda party: None)
    pool = np.random.default_rng(0).normal(size=(30, *read.terms.input_shape)).astype(np.float32)
    made = plan_records(read, pool, choice=QueryChoice(), rule="exhaustive").study
    assert made.votes.population == 500
    assert (made.findings, made.classes) == (findings, 2 * (len(findings) or 1))
    assert read_deployed(study_file(tmp_path, made)) == made


def test_the_template_of_a_count_is_a_draft_of_which_a_count_is_made(tmp_path):
    file = tmp_path / "draft.toml"
    file.write_text(study_template("count"))
    made = plan_count(read_draft(file, keys=lambda party: None))
    assert made.terms.class_names == ("no", "yes", "missing")
    assert {seat.epsilon for seat in made.roster} == {0.1}
    assert read_deployed(study_file(tmp_path, made)) == made
    with refuses(InvalidInput, "counts"):
        plan_count(draft())


def test_other_queries_than_the_studys_are_refused(tmp_path):
    study, queries = record_study_of()
    other = plan_records(draft(), POOL, choice=QueryChoice(bins=3), rule="exhaustive").queries
    with refuses(InvalidInput, "that of the study"):
        read_blocks(write_queries(tmp_path, other), study)
    for fewer in ({"votes": 3, "partitions": ()}, {"partitions": (4, 4)}):
        with refuses(InvalidInput, 8, 4):
            read_blocks(write_queries(tmp_path, queries), study.voting(**fewer))
    wider = replace(study.terms, features=(), input_shape=(5,))
    with refuses(InvalidInput, "(4,)", "(5,)"):
        read_blocks(write_queries(tmp_path, queries), replace(study, terms=wider))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unit": "party"}, "unit is 'party'; allowed where records vote: record, patient"),
        ({"confidentiality": Clear()}, "units is missing; allowed with view .histogram.: a power of two"),
    ],
)
def test_a_study_whose_sums_must_not_leave_is_none(change, words):
    with pytest.raises(InvalidInput, match=words):
        replace(draft(), **change)


@pytest.mark.parametrize(
    ("study", "pool", "words"),
    [
        (replace(draft(), terms=replace(draft().terms, features=())), POOL, ("have no names; allowed: clusters:N",)),
        (draft(), POOL[:, :3], ("(3,)", "(4,)")),
        (draft(epsilon=1e-9), POOL, ("1e-09",)),
    ],
)
def test_a_draft_of_which_no_study_can_be_made_is_refused(study, pool, words):
    with refuses(InvalidInput, *words):
        plan_records(study, pool, choice=QueryChoice(), rule="exhaustive")


def test_a_study_with_records_and_terms_gives_itself_back_from_its_file(tmp_path):
    study, _ = record_study_of(unit="patient")
    path = tmp_path / "study.toml"
    path.write_text(write_study(study))
    assert read_deployed(path) == study
    assert deployed(study, study.terms).digest == study.digest


def test_a_study_whose_sums_do_not_fit_one_reply_is_not_opened():
    study, _ = record_study_of()
    check_askable(study, reply_bytes=8 * 8 * 2 + 2**16)
    with refuses(InvalidInput, 65664, 65663):
        check_askable(study, reply_bytes=8 * 8 * 2 + 2**16 - 1)


def test_a_pool_is_drawn_from_the_terms_where_there_is_none(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "draft.toml").write_text(write_study(draft()))
    drawn = ["study", "draw-pool", "draft.toml", "--records", "50"]
    assert run_command(drawn) == 0
    assert "50 records of 4 features" in capsys.readouterr().out
    planned = plan_records(draft(), np.load("pool.npy"), choice=QueryChoice(), rule="exhaustive")
    assert planned.study.terms.pool_size == 50
    assert run_command(drawn) == 3
    assert "pool.npy exists; allowed: a new file" in capsys.readouterr().err


def test_a_pool_is_put_into_the_order_of_asking(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "draft.toml").write_text(write_study(draft()))
    pool = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.save("pool.npy", pool)
    ordered = ["study", "order-pool", "draft.toml", "--pool", "pool.npy", "--questions", "centres:5"]
    assert run_command(ordered) == 0
    assert "ordered.npy: 30 records of pool.npy, centres:5" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load("ordered.npy"), pool[in_order(pool, "centres:5", seed=0)])
    assert run_command(ordered) == 3
    assert "ordered.npy exists; allowed: a new file" in capsys.readouterr().err


def test_an_encoder_is_made_of_the_studys_pool_and_of_no_other(tmp_path, capsys, monkeypatch):
    given = []
    maker = lambda kind, **options: lambda pool: given.append((pool, kind)) or b"x"  # noqa: E731
    monkeypatch.setattr("coordinator.encoders.encoder_maker", maker)
    file, pool, other = (
        study_file(tmp_path, record_study_of()[0], "study.toml"),
        tmp_path / "pool.npy",
        tmp_path / "other.npy",
    )
    write_pool(pool, POOL)
    write_pool(other, POOL * 2)
    out = tmp_path / "encoder.onnx"
    made = ["study", "encoder", "denoising", "--draft", str(file), "--out", str(out), "--pool"]
    assert run_command([*made, str(other)]) == Exit.INVALID_INPUT
    assert "allowed: terms.pool_sha256" in capsys.readouterr().err
    assert run_command([*made, str(pool)]) == 0
    np.testing.assert_array_equal(given[0][0], POOL)
    assert (given[0][1], len(given)) == ("denoising", 1)
    assert out.read_bytes() == b"x"
    assert hashlib.sha256(b"x").hexdigest() in capsys.readouterr().out
    assert run_command([*made, str(pool)]) == Exit.INVALID_INPUT
