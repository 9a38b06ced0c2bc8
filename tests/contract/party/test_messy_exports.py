"""Four hospitals' exports of the UCI heart-disease data as hospitals have them, from `data check` to records.

The files are written from the published ones, with encodings, signs and words of their own. Values are those published.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from party.commands.group import run_command
from party.data import load_records
from protocols.study.terms import Feature
from runtime.shipped import heart_disease
from tests.harness.certifying import Certifying
from tests.harness.homes import make_member, study_file
from tests.harness.studies import deployed_study

FEATURES = (
    Feature(column="age", kind="numeric", centre=54.0, scale=9.0, least=18, most=110),
    Feature(column="sex", kind="categorical", categories=("female", "male")),
    Feature(column="chol", kind="numeric", centre=230.0, scale=60.0, least=50, may_miss=True),
    Feature(column="oldpeak", kind="numeric", centre=1.0, scale=1.0, may_miss=True),
)


def published(hospital):
    return [line.split(",") for line in heart_disease.hospital_lines(None)[hospital]]


def written(header, rows, *, delimiter, missing, sexes, ill, comma=False, encoding="utf-8", end="\n"):
    """An export of age, sex, chol, oldpeak and the diagnosis."""
    lines = [delimiter.join(header)]
    for row in rows:
        numbers = [missing if row[at] == "?" else row[at].replace(".", "," if comma else ".") for at in (0, 4, 9)]
        lines.append(delimiter.join([numbers[0], sexes[int(float(row[1]))], *numbers[1:], ill[row[13] != "0"]]))
    return end.join(lines).encode(encoding)


STUDYS = ["age", "sex", "chol", "oldpeak", "side"]
EXPORTS = {
    "cleveland": (
        {"delimiter": ";", "missing": "-", "sexes": "wm", "ill": ["nein", "ja"], "comma": True, "encoding": "cp1252",
         "end": "\r\n"},
        ["Alter", "Geschlecht", "Cholesterin", "ST-Senkung (Übung)", "KHK"],
    ),
    "hungarian": (
        {"delimiter": "\t", "missing": "NA", "sexes": ["Female", "Male"], "ill": ["No", "Yes"],
         "encoding": "utf-8-sig"},
        ["Age", "Sex", "Chol", "Oldpeak", "Side"],
    ),
    "switzerland": ({"delimiter": ",", "missing": ".", "sexes": "FM", "ill": ["no", "yes"]}, STUDYS),
    "va": (
        {"delimiter": "\t", "missing": "n/a", "sexes": ["female", "male"], "ill": ["N", "Y"], "encoding": "utf-16"},
        STUDYS,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    authority = Certifying()
    authority.make_authority()
    authority.address, authority.enrol_port = "127.0.0.1:1", 2
    folder = tmp_path_factory.mktemp("messy")
    home = make_member(folder / "a", authority)
    text = home.settings_file.read_text()
    home.settings_file.write_text(text.replace('patient = "patient"', 'patient = ""'))
    made = deployed_study(1)
    terms = replace(made.terms, features=FEATURES, input_shape=(7,), class_names=("no", "yes"))
    study_file(folder, replace(made, terms=terms))
    return home, folder, terms


@pytest.mark.parametrize("hospital", EXPORTS)
def test_an_export_is_mapped_without_rewriting_it_and_gives_the_published_values(home, hospital, capsys, monkeypatch):
    home, folder, terms = home
    monkeypatch.chdir(folder)
    form, header = EXPORTS[hospital]
    rows = published(hospital)
    rows[2] = ["440073", *rows[2][1:]]  # a typing error
    records_file = home.settings().data.source.path
    content = written(header, rows, **form)
    records_file.write_bytes(content)
    home.mapping_file().unlink(missing_ok=True)
    at = ["--home", str(home.path)]
    columns = [f"{study}={own}" for study, own in zip(STUDYS, header, strict=True) if study != own.casefold()]

    assert run_command(["data", "check", "study.toml", "--page", "bad.html", *at]) == 3
    page = (folder / "bad.html").read_text()
    assert page.index("NOT READY") < page.index("<h2>Problems")
    assert "440073" not in page
    out = capsys.readouterr().out
    assert out.startswith("NOT READY")
    commands = [line for line in out.splitlines() if "conclave-party data map" in line]
    assert max(map(len, {*out.splitlines()[2:]} - {*commands})) <= 80
    # One command names all columns that have other names, and the home that was given.
    lacking = [each for each in columns if f"no column '{each.partition('=')[0]}'" in out]
    if lacking:
        assert f" --home {home.path} study.toml --column " in commands[0]
        assert commands[0].count("--column") == len(lacking)
    given = [word for each in columns for word in ("--column", each)]
    assert run_command(["data", "map", "study.toml", "--yes", *given, *at]) == 3
    left = capsys.readouterr().out
    assert re.search(r"age.*: cannot be used; allowed: a finite number from 18 up to 110\n +1 row: 3; .*'440073'", left)
    remedies = ["--unusable", "age=leave out", "--unusable", "chol=missing"]
    assert run_command(["data", "map", "study.toml", "--yes", *remedies, *at]) == 0
    capsys.readouterr()
    assert run_command(["data", "check", "study.toml", "--json", "--page", "good.html", *at]) == 0
    figures, page = capsys.readouterr().out, (folder / "good.html").read_text()
    assert "440073" not in figures + page, "no value of a record is in the figures"
    assert page.index("READY: the records can be read") < page.index("<h2>")
    assert records_file.read_bytes() == content

    records = load_records(home.settings().data, terms)
    np.testing.assert_array_equal(np.flatnonzero(~records.usable), [2])
    for row, (inputs, label) in enumerate(zip(records.inputs, records.labels, strict=True)):
        if row != 2:
            age, sex, chol, oldpeak = (rows[row][at] for at in (0, 1, 4, 9))
            chol = "?" if chol == "0" else chol
            wanted = [(float(age) - 54) / 9, float(sex) == 0, float(sex) == 1]
            wanted += [0, 1] if chol == "?" else [(float(chol) - 230) / 60, 0]
            wanted += [0, 1] if oldpeak == "?" else [float(oldpeak) - 1, 0]
            np.testing.assert_allclose(inputs, wanted, rtol=1e-5, atol=1e-6)
            assert label == (rows[row][13] != "0")
