import datetime
from dataclasses import replace

import numpy as np
import pytest

from coordinator.labelling.study_creation import create_study, study_template, write_pool
from coordinator.store.store import Store
from protocols.errors import BudgetExceeded, ConclaveError, InvalidInput
from protocols.study.file import read_study, write_study
from protocols.study.queries import pool_digest
from tests.harness.dying import Deaths, Killed
from tests.harness.operators import SETTINGS, make_home
from tests.harness.refusals import refuses
from tests.harness.studies import NOW, deployed_study, make_study, pool_of

STUDY = deployed_study(3)


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path)


def create(home, tmp_path, study=STUDY, *, pool=None, today=None):
    (tmp_path / "study.toml").write_text(write_study(study))
    write_pool(tmp_path / "pool.npy", pool_of(60, 4) if pool is None else pool)
    with Store(home) as store:
        return create_study(
            store, SETTINGS, file=tmp_path / "study.toml", pool_file=tmp_path / "pool.npy", today=today or NOW.date()
        )


def test_a_study_is_kept_as_it_was_given(home, tmp_path):
    made = create(home, tmp_path)
    assert made == STUDY
    assert read_study(home.study("test") / "study.toml") == STUDY
    assert (np.load(home.study("test") / "pool.npy") == pool_of(60, 4)).all()
    with Store(home) as store:
        assert store.studies() == {"test": STUDY.digest}


def terms(**changes):
    return replace(STUDY, terms=replace(STUDY.terms, **changes))


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (make_study([1.0], threshold=-2.0), r"no \[terms\]"),
        (terms(coordinator="other"), "allowed: 'centre'"),
        (terms(ends="2001-01-01"), "which is over"),
        (terms(pool_sha256="0" * 64), "they are filled in"),
        (terms(pool_size=59), "60 queries"),
        (terms(input_shape=(5,)), "shape"),
        (replace(STUDY, name="../evil"), "is not allowed"),
    ],
)
def test_a_study_that_does_not_hold_together_is_refused_and_nothing_is_kept(home, tmp_path, study, said):
    with pytest.raises(InvalidInput, match=said):
        create(home, tmp_path, study)
    with Store(home) as store:
        assert store.studies() == {}
    assert not home.studies.exists() or list(home.studies.iterdir()) == []


def test_a_budget_that_bears_no_query_is_named(home, tmp_path):
    poor = replace(STUDY, roster=(*STUDY.roster[:2], replace(STUDY.roster[2], epsilon=0.1)))
    with refuses(BudgetExceeded, "hospital-2", "0.1"):
        create(home, tmp_path, poor)


def test_a_name_is_given_once(home, tmp_path):
    create(home, tmp_path)
    with refuses(InvalidInput, "exists"):
        create(home, tmp_path, terms(deadline_s=7.0))
    assert read_study(home.study("test") / "study.toml") == STUDY


def test_a_creation_that_is_killed_at_any_statement_can_be_done_again(home, tmp_path, monkeypatch):
    deaths = Deaths(monkeypatch)
    probe = make_home(tmp_path / "probe")
    started = deaths.statements
    create(probe, tmp_path)
    total = deaths.statements - started
    for at in range(total):
        other = make_home(tmp_path / f"home-{at}")
        deaths.arm(at)
        with pytest.raises(Killed):
            create(other, tmp_path)
        deaths.disarm()
        with Store(other) as store:
            known = store.studies()
            if known:
                assert store.study("test") == STUDY
        if not known:
            create(other, tmp_path)
        assert (other.study("test") / "pool.npy").exists()


def test_a_folder_with_a_ledger_that_the_store_forgot_is_not_removed(home, tmp_path):
    home.study("test").mkdir(parents=True)
    (home.study("test") / "ledger.sqlite").write_bytes(b"spend")
    with refuses(InvalidInput, "ledger"):
        create(home, tmp_path)
    assert (home.study("test") / "ledger.sqlite").read_bytes() == b"spend"


@pytest.mark.parametrize("findings", [(), ("effusion", "oedema")])
def test_the_template_is_a_study_once_its_pool_is_given(home, tmp_path, findings):
    pool = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)
    file = tmp_path / "template.toml"
    file.write_text(study_template("teacher", findings))
    np.save(tmp_path / "pool.npy", pool)
    with Store(home) as store:
        made = create_study(store, SETTINGS, file=file, pool_file=tmp_path / "pool.npy", today=NOW.date())
    assert (made.terms.input_shape, made.terms.pool_size, made.terms.pool_sha256) == ((5,), 300, pool_digest(pool))
    assert read_study(home.study("heart") / "study.toml") == made
    assert made.name == "heart"
    assert len(made.roster) == 4
    nothing = np.zeros(4, dtype=np.int64)
    assert made.budgets.affordable(nothing, limit=300).min() >= 50
    assert made.queries_to_ask == 300 * max(1, len(findings))


def test_every_key_of_the_template_but_names_is_explained():
    bare = [
        line
        for line in study_template("teacher").splitlines()
        if line.startswith(("sigma", "unit", "quorum", "stop", "deadline_s"))
    ]
    assert all("#" in line or line.startswith(("unit", "view")) for line in bare)


def test_a_study_of_yesterday_cannot_be_created_today(home, tmp_path):
    study = terms(ends="2026-01-01")
    create(home, tmp_path, study, today=datetime.date(2026, 1, 1))
    other = make_home(tmp_path / "other")
    with pytest.raises(ConclaveError, match="which is over"):
        create(other, tmp_path, study, today=datetime.date(2026, 1, 2))
