"""The commands data check, map, score and predict: whether records fit, what words mean, how good a model is."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from math import isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any  # the values of a JSON object

import click

from party.commands.group import home_option
from protocols.errors import DataCorrupt, InvalidInput, Refused, VerificationFailed
from protocols.plural import counted
from protocols.refusals.code import Code
from runtime.cli import EPILOG, json_option
from runtime.exits import Exit
from runtime.files import write_atomically
from runtime.printing import pasteable, print_json, say_next, wrapped

if TYPE_CHECKING:
    from jaxtyping import Int64
    from numpy import ndarray

    from party.audit import VerifiedStudent
    from party.data.mapping import DataMapping
    from party.data.quality import Problem, Proposal, Quality
    from party.data.records import DataSettings, RecordLabels, Records
    from party.home import PartyHome
    from party.teachers.finding_scores import FindingsScore
    from party.teachers.scores import TeacherScore
    from party.teachers.teacher import TeacherKind
    from party.voting.suitability import Suitability
    from protocols.study.study import Study
    from protocols.study.terms import Terms

_ALSO_VOTED = "These records may have shaped the labels that the student learned: keep some back for --test"
_RELEASE = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command(epilog=EPILOG)
@click.argument("study")
@home_option
@json_option
@click.option("--release", type=_RELEASE, help="A released student of this study, to compare with: alone and together.")
@click.option(
    "--test",
    "test_file",
    type=click.Path(path_type=Path, exists=True),
    help="Labelled records that were kept back [your own records, cross-validated].",
)
def score(study: str, home: PartyHome, as_json: bool, release: Path | None, test_file: Path | None) -> None:
    """Say how accurate this hospital's own model is, on records that it did not learn from; nothing leaves.

    Alone: a model of teachers.kind of all own records, cross-validated in five parts, or on --test; it learns from
    teachers.features or the pool where teachers do.
    No patient is in two parts, where data.patient names them. Together: the released student on the same records.
    Judged: how often the release says that it is right at all hospitals.

    \b
    Examples:
      conclave-party data score study.toml
      conclave-party data score heart --release release-heart --test kept-back.csv
    """
    from party.data import load_records, of_file
    from party.teachers.scores import score_teacher as scored
    from party.voting.training import SUITABILITY_FOLDS, kind_in, predicted_kept_back, predicted_unseen

    settings, found = home.settings(), home.find_study(study)
    names = found.terms.class_names
    student = None if release is None else _student(release, home)
    if student is not None and student.study.terms.features != found.terms.features:
        raise InvalidInput(f"{release} is of study {student.study.name!r}; allowed: a release of {found.name!r}")
    kind, _ = kind_in(found, settings.teachers, pool=home.pool(found.digest))
    records, seed = load_records(settings.data, found.terms), settings.teachers.seed
    if found.findings:
        test = None if test_file is None else load_records(of_file(settings.data, test_file), found.terms)
        return _score_findings(records, test, kind, found.findings, student, seed=seed, as_json=as_json)
    if test_file is None:
        judged, alone = records, predicted_unseen(records, kind, seed=seed, classes=found.classes)
        how = f"cross-validated in {SUITABILITY_FOLDS} parts, by {'patient' if settings.data.patient else 'record'}"
    else:
        judged = load_records(of_file(settings.data, test_file), found.terms)
        alone = predicted_kept_back(records, judged, kind, seed=seed, classes=found.classes)
        how = f"on {test_file}"
    truth = judged.labels[judged.usable]
    together = None if student is None else student.predict(judged.inputs[judged.usable])
    figures = {"alone": scored(alone, truth, names)}
    if together is not None:
        figures["together"] = scored(together, truth, names)
    if as_json:
        judges = student and student.judged and list(student.judged.accuracy)
        shown = {"how": how, "judged": judges, **{key: each.figures() for key, each in figures.items()}}
        print_json(shown)
        return
    for line in _compared(figures, how, settings.teachers.kind, alone, together, truth):
        click.echo(wrapped(line, " " * 10))
    if student is not None:
        click.echo(wrapped(_judged_words(student), " " * 10))
    if student is not None and test_file is None and _answered(home, student.study):
        click.echo(wrapped(_ALSO_VOTED, " " * 10))


def _score_findings(
    records: Records, test: Records | None, kind: TeacherKind, names: Sequence[str], student: VerifiedStudent | None, *,
    seed: int, as_json: bool,
) -> None:  # fmt: skip
    """How often own models tell each finding right alone, and how well the released student does."""
    from party.teachers.finding_scores import findings_score
    from party.teachers.scores import score_teacher as scored
    from party.voting.training import predicted_kept_back, predicted_unseen
    from protocols.study.findings import STATES

    judged, alone = records if test is None else test, {}
    for at, name in enumerate(names):
        own, held = records.of_finding(at), judged.of_finding(at)
        if not (own.usable.any() and held.usable.any()):
            continue  # nothing to learn from, or to score on
        if test is None:
            told = predicted_unseen(own, kind, seed=seed, classes=len(STATES))
        else:
            told = predicted_kept_back(own, held, kind, seed=seed, classes=len(STATES))
        alone[name] = scored(told, held.labels[held.usable], STATES)
    together = None
    if student is not None:
        inputs = judged.inputs[judged.usable]
        together = findings_score(names, student.predict(inputs), student.scores(inputs), judged.labels[judged.usable])
    if as_json:
        figures = {"alone": {name: each.figures() for name, each in alone.items()}}
        print_json(figures | ({"together": together.figures()} if together else {}))
        return
    lines = [f"alone     {name}: {each.words()}" for name, each in alone.items()]
    lines += [f"together  {line}" for line in (together.lines() if together else [])]
    for line in lines:
        click.echo(wrapped(line, " " * 10))


def _answered(home: PartyHome, study: Study) -> bool:
    """Whether this home was ever charged in the study, so that its records may have shaped the labels."""
    from protocols.ledger.ledger import Ledger

    for path in (home.ledger(study.digest, seat.party) for seat in study.roster):
        if path.exists():
            with Ledger(path) as ledger:
                if any(ledger.ever_reserved(name) for name in ledger.balances()):
                    return True
    return False


def _compared(
    figures: dict[str, TeacherScore],
    how: str,
    kind: str,
    alone: Int64[ndarray, " records"],
    together: Int64[ndarray, " records"] | None,
    truth: Int64[ndarray, " records"],
) -> list[str]:
    """The figures for people: the verdict first."""
    own = figures["alone"]
    lines = [f"alone     {own.words()}", f"({kind}; {counted(own.records, 'record')}, {how})"]
    if together is None:
        if how.startswith("cross"):
            lines.append("(the five models share records, so the interval is a little too narrow)")
        return lines
    ours, theirs = alone == truth, together == truth
    gained, lost = int((theirs & ~ours).sum()), int((ours & ~theirs).sum())
    lines.insert(1, f"together  {figures['together'].words()}")
    lines.append(f"{counted(gained, 'record')} are right together only, {lost} alone only")
    return lines


@click.command(epilog=EPILOG)
@click.argument("release", type=_RELEASE)
@click.option(
    "--records",
    "records_path",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="A table with the study's columns, .npy or .npz, or a folder of images in one folder per class.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The CSV file to write.")
@click.option(
    "--authority",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The consortium's certificate, from somebody you trust: then no node's home is needed.",
)
@click.option(
    "--mapping",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A mapping file, beside --authority [columns and words as the study has them].",
)
@click.option("--id", "id_column", metavar="COLUMN", help="A column of yours to keep beside each prediction.")
@home_option
@json_option
def predict(
    release: Path,
    records_path: Path,
    out: Path,
    authority: Path | None,
    mapping: Path | None,
    id_column: str | None,
    home: PartyHome,
    as_json: bool,
) -> None:
    """Verify a RELEASE, apply its student to records of your own, and score it where labels are there.

    The records are read as the release's study says, with this hospital's mapping file. OUT has a line per record: its
    row, the column of --id, the predicted class and the probability that it is right, calibrated by the hospitals'
    judges (empty where nobody judged the student), the columns whose number lies outside what the student learned from,
    and nothing for a record that the mapping leaves out. Of several findings: of each whether the student names it, and
    its probability. Nothing leaves. A physician without a node gives --authority.

    \b
    Examples:
      conclave-party predict release-heart --records ward.csv --out predicted.csv
      conclave-party predict release-heart --authority authority.pem --records ward.csv --id case --out predicted.csv
    """
    from party.data import of_file
    from party.data.queries import in_any_range, own_records
    from party.teachers.finding_scores import findings_score
    from party.teachers.scores import score_teacher as scored

    if out.exists() and (out.is_dir() or out.resolve() == records_path.resolve()):
        raise InvalidInput(f"--out {out} is a folder or the records themselves; allowed: another file")
    if mapping is not None and authority is None:
        raise InvalidInput(f"--mapping {mapping} is given without --authority; allowed: with it; a home has one")
    student, settings = _student(release, home, authority), _as_written(home, records_path, authority, mapping)
    settings, terms = in_any_range(settings, student.study.terms)
    inputs, labels, used = own_records(settings, records_path, terms)
    kept = None
    if id_column is not None:
        own = of_file(settings, records_path)
        if not own.source.is_table or id_column not in own.source.header(own.mapping.form):
            raise InvalidInput(f"--id is {id_column!r}; allowed: a column of {records_path}")
        kept = own.source.columns([id_column], own.mapping.form)[id_column]
    predicted: RecordLabels
    if findings := terms.findings:
        predicted, chances = student.predict(inputs[used]), student.chances(inputs[used])
        heads = [head for name in findings for head in (name, f"{name} probability")]
    else:
        predicted, chances = student.decided(inputs[used])
        heads = ["predicted", "probability"]
    outside = student.outside(inputs[used])
    shape = (len(predicted), len(heads) // 2)
    text, found = io.StringIO(), iter(zip(predicted.reshape(shape), chances.reshape(shape), outside, strict=True))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *([] if id_column is None else [id_column]), *heads, "outside"])
    for row, fits in enumerate(used.tolist(), start=1):
        cells, beyond = [""] * len(heads), list[str]()
        if fits:
            told, sure, beyond = next(found)
            cells[::2] = [terms.class_names[which] for which in told.tolist()]
            cells[1::2] = ["" if isnan(chance) else f"{chance:.4f}" for chance in sure.tolist()]
        writer.writerow([row, *([] if kept is None else [kept[row - 1]]), *cells, "; ".join(beyond)])
    write_atomically(out, text.getvalue().encode())
    result: TeacherScore | FindingsScore | None = None
    if labels is not None and findings:
        result = findings_score(findings, predicted, student.scores(inputs[used]), labels[used])
    elif labels is not None:
        result = scored(predicted, labels[used], terms.class_names)
    if as_json:
        figures: dict[str, Any] = {"release": str(release), "records": len(used), "predicted": int(used.sum())}
        figures["judged"] = student.judged and (student.judged.of_findings or list(student.judged.accuracy))
        figures["outside"] = sum(map(bool, outside))
        print_json({**figures, "score": None if result is None else result.figures()})
        return
    said = "no labels, so nothing is scored" if result is None else result.words()
    for line in f"{int(used.sum())} of {counted(len(used), 'record')}: {said}".splitlines():
        click.echo(line)
    click.echo(_judged_words(student))
    if marked := sum(map(bool, outside)):
        click.echo(wrapped(f"outside   {counted(marked, 'record')} with a number that the student never learned from: "
                          "nobody knows how often it is right there", " " * 10))  # fmt: skip
    click.echo(f"the release is signed by the coordinator and unaltered; predictions are in {out}")


def _judged_words(student: VerifiedStudent) -> str:
    """How often the student is right about the hospitals' units, as its release says."""
    from party.teachers.scores import share_words

    if student.judged is None:
        return "judged    not measured: no judges of the hospitals were asked how often it is right"
    if several := student.judged.of_findings:
        said = (f"about {name} in {share_words(value, (low, high))}" for name, (value, low, high) in several.items())
        return f"judged    right {', '.join(said)}, say the hospitals' judges"
    value, low, high = student.judged.accuracy
    return f"judged    right in {share_words(value, (low, high))}, say the hospitals' judges"


def _as_written(home: PartyHome, records: Path, authority: Path | None, mapping: Path | None) -> DataSettings:
    """How the records are written: as a node's settings say, or as the study has them and a mapping file says."""
    from party.data.files import CsvFile
    from party.data.mapping import DataMapping, read_mapping
    from party.data.records import DataSettings

    if authority is None:
        return home.settings().data
    words = DataMapping() if mapping is None else read_mapping(mapping)
    return DataSettings(name="own", loader="csv", source=CsvFile(records), mapping=words)


def _student(release: Path, home: PartyHome, given: Path | None = None) -> VerifiedStudent:
    """The verified student; what is not as signed counts as a failed verification. given: the authority's certificate,
    in place of the home's: then the coordinator is whoever the study names, with a certificate of this authority."""
    from party.audit import read_student
    from protocols.crypto.identity import PEM_BYTES, certificate_from_pem
    from protocols.reading import read_bytes
    from protocols.study.file import read_deployed

    try:
        if given is not None:
            coordinator = read_deployed(release / "study.toml").terms.coordinator
            pem = read_bytes(given, most=PEM_BYTES)
        else:
            coordinator, pem = home.invitation().coordinator, home.invitation().authority
        return read_student(release, authority=certificate_from_pem(pem), coordinator=coordinator)
    except (Refused, DataCorrupt) as error:
        raise VerificationFailed(str(error)) from error


@click.group()
def data() -> None:
    """Check this hospital's own records, and say what its words mean in a study."""


@data.command(epilog=EPILOG)
@click.argument("study")
@home_option
@json_option
@click.option("--page", type=click.Path(path_type=Path), help="Write the report as a page too, without values.")
def check(study: str, home: PartyHome, as_json: bool, page: Path | None) -> int:
    """Say whether the records fit a study's terms and can train its teachers, with every problem at once.

    Nothing leaves. Values of records are shown on this terminal alone; --json and --page name rows, and words that are
    proposed for the mapping file.

    STUDY: a study's file, or the name of an approved study.

    \b
    Example:
      conclave-party data check study.toml
      conclave-party data check study.toml --page quality.html
    """
    from party.data.quality import examine_rows
    from party.voting.suitability import quality_page, suitability

    settings, found = home.settings(), home.find_study(study)
    quality = examine_rows(settings.data, found.terms) if settings.data.source.is_table else None
    open_yet = quality is not None and bool(quality.problems or quality.proposals)
    fit = None if open_yet else suitability(settings, found, home.invitation().party)
    good = fit is not None and fit.ready
    given = "" if found.confidentiality.asked_by else found.votes.given
    approve = f"conclave-party approve {study}{given and f' {given} FILE'}"
    if page is not None:
        made = quality_page(settings.data.shown, study, quality, fit, approve=approve)
        write_atomically(page, made.encode())
    if as_json:
        print_json(_figures(settings.data.shown, quality, fit, good))
    else:
        for line in _lines(settings.data.shown, quality, fit, study, approve):
            click.echo(pasteable(line))
    return Exit.DONE if good else Exit.INVALID_INPUT


@data.command(name="map", epilog=EPILOG)
@click.argument("study")
@home_option
@click.option("--column", "columns", multiple=True, metavar="STUDYS=YOURS", help="Your name of a study's column.")
@click.option(
    "--value", "values", multiple=True, metavar="COLUMN:YOURS=STUDYS",
    help="What your value means in a study's column; nothing after = for a missing one.",
)  # fmt: skip
@click.option(
    "--unusable", multiple=True, metavar="COLUMN=REMEDY",
    help="What to do with values that cannot be used: missing, leave out (the record), or clip.",
)  # fmt: skip
@click.option(
    "--times", multiple=True, metavar="COLUMN=FACTOR",
    help="What numbers in another unit are multiplied by; 1 says that the unit is the study's.",
)  # fmt: skip
@click.option("--decimal", help="The decimal sign of numbers: . or ,")
@click.option("--thousands", help="The sign between thousands: . , ' or a blank.")
@click.option("--delimiter", help="Separator of a CSV file's fields: , ; | or a tab.")
@click.option("--encoding", help="Encoding of a CSV file: utf-8, utf-16, cp1252 or latin-1.")
@click.option("--names", help="When two names are one patient's: exact, folded (case, blanks) or number (007 is 7).")
@click.option("--equal-rows", help="Whether equal records are one, or each counts: one or each.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
def make_map(
    study: str,
    home: PartyHome,
    columns: tuple[str, ...],
    values: tuple[str, ...],
    unusable: tuple[str, ...],
    times: tuple[str, ...],
    yes: bool,
    **said: str | None,
) -> int:
    """Write this hospital's mapping file: what is given as options, and what is proposed, once you agree.

    The file stands beside node.toml, and everything that reads the records uses it. The records stay as they are.

    \b
    Examples:
      conclave-party data map study.toml
      conclave-party data map study.toml --column age=Alter --value "sex:m=male" --unusable "age=leave out"
    """
    from party.data.mapping import check_mapping, mapping_toml
    from party.data.quality import Quality, examine_rows

    settings, terms = home.settings(), home.find_study(study).terms
    path = home.mapping_file()
    given = {key: value for key, value in said.items() if value is not None}
    mapping = check_mapping(_with_options(settings.data.mapping, given, columns, values, unusable, times, terms), path)
    if not settings.data.source.is_table:  # only how units are told apart can be said
        quality = Quality(0, (), (), (), mapping)
    else:
        quality = examine_rows(dataclasses.replace(settings.data, mapping=mapping), terms)
    for each in quality.proposals:
        click.echo(_indented(_proposed(each), "  "))
    if quality.proposals and not yes and not click.confirm(f"Is that what they mean? Write {path}?", err=True):
        raise Refused(Code.NOT_CONFIRMED, f"{path} was not written")
    notes: dict[str, list[str]] = {}
    for problem in quality.problems:
        note = ": ".join(filter(None, (problem.found, problem.todo)))
        notes.setdefault(problem.column or problem.own or "the whole file", []).append(note[:300])
    write_atomically(path, mapping_toml(quality.mapping, notes=notes).encode())
    click.echo(f"wrote {path}")
    for line in _problems(quality, study):
        click.echo(pasteable(line))
    if quality.problems:
        left = sum(bool(problem.todo) for problem in quality.problems)
        click.echo(pasteable(f"{left} left for you to settle; then: conclave-party data check {study}"))
        return Exit.INVALID_INPUT
    say_next(f"conclave-party data check {study}")
    return Exit.DONE


data.add_command(score)


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _with_options(
    mapping: DataMapping,
    given: dict[str, str],
    columns: Sequence[str],
    values: Sequence[str],
    unusable: Sequence[str],
    times: Sequence[str],
    terms: Terms,
) -> DataMapping:
    """The mapping with what the command line says. Raises InvalidInput for a column that the study does not have."""
    known = [*terms.columns]

    def pair(flag: str, text: str, sign: str) -> tuple[str, str]:
        left, found, right = text.partition(sign)
        if not found or left not in known:
            raise InvalidInput(
                f"{flag} {text!r}: allowed: a column of the study ({', '.join(known)[:300]}), then {sign}"
            )
        return left, right

    words = {column: dict(each) for column, each in mapping.values.items()}
    for text in values:
        column, said = pair("--value", text, ":")
        own, found, name = said.rpartition("=")
        if not found:
            raise InvalidInput(f"--value {text!r}; allowed: COLUMN:YOURS=STUDYS")
        words.setdefault(column, {})[own.strip()] = name.strip()
    factors = dict(mapping.times)
    for text in times:
        column, factor = pair("--times", text, "=")
        if column not in {each.column for each in terms.features if each.kind == "numeric"} or not is_number(factor):
            raise InvalidInput(f"--times {text!r}; allowed: a numeric column of the study, = and a number above 0")
        factors[column] = float(factor)
    of_units = {key: given.pop(key) for key in ("names", "equal_rows") if key in given}
    return dataclasses.replace(
        mapping,
        **of_units,
        form=dataclasses.replace(mapping.form, **given),  # type: ignore[arg-type]  # of its four texts
        columns={**mapping.columns, **dict(pair("--column", text, "=") for text in columns)},
        values=words,
        unusable={**mapping.unusable, **dict(pair("--unusable", text, "=") for text in unusable)},
        times=factors,
    )


def _lines(place: str, quality: Quality | None, fit: Suitability | None, study: str, approve: str) -> list[str]:
    """The report for a terminal of 80 columns, the verdict first. approve: the command that comes next."""
    if quality is not None and (quality.problems or quality.proposals):
        lines = ["NOT READY: the records cannot be read by the study's terms yet.", place, ""]
        lines += _problems(quality, study)
        if quality.proposals:
            lines += ["Proposed, and written only once you agree:"]
            lines += [_indented(_proposed(each), "  ") for each in quality.proposals]
        lines += _columns(quality)
        return [*lines, "", f"next: conclave-party data map {study}"]
    assert fit is not None
    lines = [fit.verdict, place, ""]
    lines += [_indented(line.replace("STUDY", study), "  ") for line in fit.lines()]
    return [*lines, *_columns(quality), "", f"next: {approve}"] if fit.ready else lines


def _columns(quality: Quality | None) -> list[str]:
    if quality is None or not quality.columns:
        return []
    lines = ["", f"Columns, of {counted(quality.rows, 'record')}:"]
    for each in quality.columns:
        named = each.column if each.own == each.column else f"{each.column} ({each.own})"
        said = [f"{each.missing} missing"] * bool(each.missing) + [f"{each.unusable} unusable"] * bool(each.unusable)
        said += [each.range] * bool(each.range)
        lines += [_indented(f"{named}: {'; '.join(said) or 'complete'}; {each.encoded}", "  ")]
    return lines


def _problems(quality: Quality, study: str) -> list[str]:
    columns = [f"--column {each.column_is}" for each in quality.problems if each.column_is]
    lines = [line for problem in quality.problems for line in _problem(problem, study)]
    if columns:
        lines.append(f"    -> conclave-party data map {study} {' '.join(columns)}")
    return [*lines, *["(rows are counted from 1, without the header)"] * any(each.rows for each in quality.problems)]


def _problem(problem: Problem, study: str) -> list[str]:
    named = problem.column if problem.own in ("", problem.column) else f"{problem.column} ({problem.own})".strip()
    head = f"{named}: {problem.found}" if named else problem.found
    lines = [_indented(head, "  ")]
    if problem.values and not problem.count:
        lines.append(_indented(f"here {problem.values[0]}", "    "))
    if problem.count:
        rows = ", ".join(map(str, problem.rows)) + ", ..." * (problem.count > len(problem.rows))
        such = f"such as {', '.join(map(repr, problem.values))}"
        lines += [_indented(f"{counted(problem.count, 'row')}: {rows}; {such}", "    ")]
    if not problem.todo or problem.column_is:  # all columns are one command
        return lines
    todo = problem.todo.replace("STUDY ", f"{study} ")
    # A command is copied as a whole: it is not folded.
    return [*lines, f"    -> {todo}" if todo.startswith("conclave-party ") else _indented(f"-> {todo}", "    ")]


def _proposed(each: Proposal) -> str:
    said = {
        "column": f"column {each.own!r} is the study's {each.column!r}",
        "decimal": f"numbers have the decimal sign {each.own!r}",
        "thousands": f"numbers have {each.own!r} between thousands",
        "delimiter": f"fields are divided by {'a tab' if each.own == chr(9) else repr(each.own)}",
        "encoding": f"the file's encoding is {each.own}",
    }
    meaning = repr(each.study) if each.study else "a missing value"
    return said.get(each.what, f"{each.column}: {each.own!r} is {meaning} ({counted(each.rows, 'row')})")


def _figures(place: str, quality: Quality | None, fit: Suitability | None, good: bool) -> dict[str, Any]:
    """The report without values of records."""
    figures: dict[str, Any] = {"source": place, "ready": good}
    if quality is not None:
        columns = [dataclasses.asdict(each) for each in quality.columns]
        figures["columns"] = [{key: each[key] for key in each if key != "range"} for each in columns]
        problems = [dataclasses.asdict(each) for each in quality.problems]
        shown = ("column", "own", "found", "todo", "count", "rows")
        figures["problems"] = [{key: each[key] for key in shown} for each in problems]
        figures["proposals"] = [dataclasses.asdict(each) for each in quality.proposals]
    return figures if fit is None else {**figures, **fit.figures()}


def _indented(text: str, indent: str) -> str:
    return wrapped(indent + text, indent + "  ")
