"""The commands approve and train: from a study's file to teachers that can vote."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any  # the values of a JSON object

import click

from party.commands.group import home_option
from protocols.claims.languages import ENGLISH, LANGUAGES, say
from protocols.errors import InvalidInput, Refused
from protocols.refusals.code import Code
from runtime.cli import EPILOG, ask_fingerprint, json_option
from runtime.printing import folded_under, print_json, say_next

if TYPE_CHECKING:
    from party.budget.known_units import UnitDigests
    from party.budget.policy import Policy
    from party.data.records import Records
    from party.home import PartyHome
    from party.lifetime import Forecast
    from party.settings import PartySettings
    from protocols.study.deployed import DeployedStudy
    from protocols.sums.blocks import Blocks


@click.command(epilog=EPILOG)
@click.argument("study_file", type=click.Path(path_type=Path))
@home_option
@json_option
@click.option("--yes", is_flag=True, help="Do not ask first.")
@click.option(
    "--guardian-fingerprint",
    help="The fingerprint of the guardian's keys, in words or in digits, as the guardian read it out; asked for, if a "
    "study has a guardian.",
)
@click.option(
    "--pool",
    "pool_file",
    type=click.Path(path_type=Path),
    help="The study's public queries (.csv, .jsonl, .parquet, .npy or .npz): the node then refuses any others.",
)
@click.option(
    "--queries",
    "queries_file",
    type=click.Path(path_type=Path),
    help="Where records vote: the study's queries (.npz), as the operator sent them.",
)
@click.option(
    "--officers-file",
    type=click.Path(path_type=Path),
    help="Write a page to sign off (.html) before asking: what GDPR article 35 asks, filled in as far as is known.",
)
@click.option(
    "--other-people",
    multiple=True,
    metavar="DATA_SET",
    help="You know that these records are of other people than those of a data set that has a cap; it is recorded.",
)
@click.option(
    "--language",
    type=click.Choice([ENGLISH, *LANGUAGES]),
    default=ENGLISH,
    show_default=True,
    help="Language of the sentences at the prompt; the terms above them stay English.",
)
@click.option("--train", "train_now", is_flag=True, help="Train the teachers at once, as `train` does.")
def approve(
    study_file: Path,
    home: PartyHome,
    as_json: bool,
    yes: bool,
    guardian_fingerprint: str | None,
    pool_file: Path | None,
    queries_file: Path | None,
    officers_file: Path | None,
    other_people: tuple[str, ...],
    language: str,
    train_now: bool,
) -> None:
    """Say in plain words what a study would spend and release, ask for approval, and reserve its cap.

    It first reads the records, and refuses if no teacher could be trained on them; nothing is reserved then. Where
    records vote, it counts their votes; approving again counts them anew, until the study was asked. Records of people
    who are counted under another lifetime cap are refused: a new name for a data set makes no new cap.

    Where a study has a guardian, it asks for the fingerprint of the guardian's keys, which the guardian reads out by
    telephone; with --yes or --json it is an option.

    \b
    Examples:
      conclave-party approve study.toml --pool pool.csv --train
      conclave-party approve study.toml --queries queries.npz
      conclave-party approve study.toml --officers-file heart.html
      conclave-party approve study.toml --yes --guardian-fingerprint pottery-lunar-...
    """
    from party.budget.approval_text import approval_words, in_brief
    from party.budget.known_units import check_told_apart
    from party.budget.policy import Policy
    from party.budget.spending import check_not_withdrawn, what_was_spent
    from party.budget.watermarks import make_ledgers, remember_approval
    from party.data import load_records
    from party.data.queries import read_pool_queries
    from party.lifetime import seats_of
    from party.voting.contribution import count_votes_of, keep_votes, list_judges, votes_given
    from party.voting.training import check_trainable
    from protocols.study.file import read_deployed

    settings, party = home.settings(), home.invitation().party
    study = read_deployed(study_file)
    terms = study.terms
    expected = home.invitation().coordinator
    if terms.coordinator != expected:
        raise Refused(Code.OTHER_COORDINATOR, f"{terms.coordinator!r} asks; allowed: {expected!r}, as invited")
    if terms.ended(datetime.datetime.now(datetime.UTC).date()):
        raise Refused(Code.STUDY_ENDED, f"the study ended on {terms.ends}; allowed: one that still runs")
    if study.votes.pooled:
        raise InvalidInput("the study upsamples pooled data; allowed in a simulation only, where nobody is a party")
    if study.budgets.settles and settings.settle is None:
        raise InvalidInput(
            f"{home.settings_file}: node.settle is missing; allowed: true or false, as in study {study.name!r} a "
            "question that is not answered costs less"
        )
    queries = _queries_of_records(study, pool_file, queries_file)
    if train_now and (as_json or queries is not None):
        with_it = "--json" if as_json else "a study in which records vote, which has no teachers"
        raise InvalidInput(f"--train is given with {with_it}; allowed: without it")
    following = "run" if train_now or _ready(home, study, party) else f"train {study.name}"
    name, ask = settings.data.name, not (yes or as_json)
    with Policy(settings.policy) as policy:
        if (doubt := what_was_spent(home, policy).doubt) is not None:
            raise doubt
        known = policy.approval(study.digest, name)
        again = known is not None and not known.withdrawn and known.home == home.identity
        if again and queries is None:
            home.keep_study(study, pool=pool_file)
            what_was_spent(home, policy).check(study.digest)
            if other_people:
                units = policy.known.digests(settings.data, load_records(settings.data, study.terms))
                other_people = _check_people(policy, name, units, other_people, ask=ask)
                policy.known.remember(name, units, other_people=other_people)
            click.echo(f"study {study.name} is already approved")
            if officers_file is not None:
                _write_officers_file(officers_file, study, party, settings, policy)
            if train_now:
                _train(home, settings, study, policy)
            say_next(f"conclave-party {following}")
            return
        records = load_records(settings.data, study.terms)
        named = records.patients is not None
        lines = _check_alike(records, settings, study, str(study_file), ask=ask)
        # What was asked is never counted or given again.
        asked = {seat for seat in seats_of(study, party) if again and votes_given(home, study, seat)}
        counted = None
        if queries is not None:
            counted = count_votes_of(records, study, queries, party, known=policy.known, but=asked)
        units = policy.known.digests(settings.data, records)
        if again:
            assert known is not None
            assert counted is not None
            check_told_apart(named, known.told_apart)
            other_people = _check_people(policy, name, units, other_people, ask=ask)
            home.keep_study(study, pool=pool_file)
            what_was_spent(home, policy).check(study.digest)
            with policy.log.together():
                policy.known.remember(name, units, other_people=other_people)
                pairs = list_judges(policy.known, study, counted)
            keep_votes(home, study, counted, pairs)
            check_not_withdrawn(home, policy, study, data_set=name, party=party)
            if officers_file is not None:
                _write_officers_file(officers_file, study, party, settings, policy)
            if not counted:
                click.echo(f"study {study.name} is already approved, and was asked: its votes are not counted again")
                return
            click.echo(f"study {study.name} is already approved")
            say_next(f"conclave-party {following}")
            return
        policy.check_approvable(study, data_set=name, home=home)
        warnings = lines if counted is not None else lines + check_trainable(settings, study, party, records)
        checked = pool_file is not None
        if pool_file is not None:
            read_pool_queries(pool_file, terms)
        forecasts = policy.forecast(study, party=party, data_set=name, caps=settings.lifetime, told_apart=named)
        other_people = _check_people(policy, name, units, other_people, ask=ask)
        if as_json:
            print_json({**_figures(study, forecasts), "warnings": warnings})
        else:
            for line in approval_words(study, party, settings, forecasts, pool_checked=checked):
                click.echo(folded_under(line))
            for line in warnings:
                click.echo("\n" + folded_under(f"Warning      {line}"))
            for each in counted or []:
                click.echo(f"\nseat {each.seat}: {each.records} records of {each.units} {study.unit}s vote")
        if officers_file is not None:
            _write_officers_file(officers_file, study, party, settings, forecasts)
        fits = all(each.fits for each in forecasts)
        if fits:
            _check_guardian(study, guardian_fingerprint, ask=not (yes or as_json))
        if fits and ask:
            for line in ["", *in_brief(study, party, forecasts, language=language)]:
                click.echo(folded_under(line), err=True)
        if fits and not yes and not click.confirm(f"\n{say(language, 'approve')}", err=True):
            raise Refused(Code.NOT_CONFIRMED, f"study {study.name!r} was not approved; nothing was reserved")
        home.keep_study(study, pool=pool_file)
        make_ledgers(home, study, party)
        with policy.log.together():
            _check_people(policy, name, units, other_people, ask=False)
            policy.approve(study, party=party, data_set=name, caps=settings.lifetime, home=home, told_apart=named)
            policy.known.remember(name, units, other_people=other_people)
            pairs = list_judges(policy.known, study, counted or [])
        remember_approval(home, study, party, policy.log)
        keep_votes(home, study, counted or [], pairs)
        check_not_withdrawn(home, policy, study, data_set=name, party=party)
    click.echo(f"\napproved {study.name}", err=as_json)
    if train_now:
        with Policy(settings.policy) as policy:
            _train(home, settings, study, policy)
    if following == "run" and home.is_running:
        click.echo("the node that runs takes the study up by itself", err=as_json)
        return
    say_next(f"conclave-party {following}", err=as_json)


def _check_alike(records: Records, settings: PartySettings, study: DeployedStudy, file: str, *, ask: bool) -> list[str]:
    """Asks whether units that look alike are different ones; returns what to say where nobody is asked.

    Raises InvalidInput where they are not, or nobody has said it of patients' names.
    """
    from party.voting.suitability import alike

    found = alike(records, settings.data.mapping, study)
    names, rows = (each.replace("STUDY", file) for each in (found.names, found.rows))
    for said, what in ((names, "patients"), (rows, "records")):
        if said and ask:
            click.echo(folded_under(said), err=True)
            if click.confirm(f"Are these different {what}?", err=True):
                continue
        if said and (ask or what == "patients"):
            raise InvalidInput(f"{settings.data.shown}: {said}")
    return [rows] if rows and not ask else []


def _check_people(
    policy: Policy, data_set: str, units: UnitDigests, other_people: tuple[str, ...], *, ask: bool
) -> tuple[str, ...]:
    """Asks whose rows are counted under another cap; returns the data sets that are said to be of other people.

    Raises Refused("known_records") where they are the same, or may be and nobody can be asked.
    """
    from party.budget.known_units import refused

    for other, rows in policy.known.check(data_set, units, other_people=other_people).items():
        said = f"{rows} of the rows are counted under the cap of {other!r}"
        if not (ask and click.confirm(f"{said}. Are these records of other people?", err=True)):
            raise refused(data_set, other, said)
        other_people = (*other_people, other)
    return other_people


def _train(home: PartyHome, settings: PartySettings, study: DeployedStudy, policy: Policy) -> dict[str, list[int]]:
    """Trains the teachers of an approved study; returns the records of each teacher, by seat."""
    from party.voting.training import train as train_teachers

    def say(text: str) -> None:
        click.echo(text, err=True)

    return dict(train_teachers(home, settings, study, home.invitation().party, policy=policy, say=say))


def _ready(home: PartyHome, study: DeployedStudy, party: str) -> bool:
    """Whether the study needs no teachers, or they are trained."""
    from party.lifetime import seats_of
    from party.voting.trained import is_trained

    return study.votes.once or all(is_trained(home.teachers(study.digest, seat)) for seat in seats_of(study, party))


def _write_officers_file(
    path: Path, study: DeployedStudy, party: str, settings: PartySettings, costs: list[Forecast] | Policy
) -> None:
    """Writes the page that an officer signs off. costs: what approving would do to the caps, or the policy of a study
    that is approved. Raises InvalidInput where the file exists: people write into it."""
    from party.budget.approval_text import lifetime_lines, reserved_lines
    from runtime.files import write_atomically
    from runtime.officers_file import Hospital, officers_file

    if path.exists():
        raise InvalidInput(f"{path} exists; allowed: a new file, as people write into this one")
    if isinstance(costs, list):
        found = lifetime_lines(study, settings, costs)
    else:
        found = reserved_lines(settings.data.name, costs.lifetime_uses())
    hospital = Hospital(
        name=party, data_set=settings.data.name, lifetime=tuple(line.strip() for line in found if line.strip())
    )
    write_atomically(path, officers_file(study, hospital=hospital))
    click.echo(f"\nofficer's file: {path}", err=True)


def _check_guardian(study: DeployedStudy, typed: str | None, *, ask: bool) -> None:
    """Raises Refused("wrong_guardian") unless a person gave the fingerprint of the study's guardian.

    typed: as an option; ask: whether to ask for it at the terminal otherwise. Raises InvalidInput where it is missing,
    is no fingerprint, or the study has no guardian.
    """
    from protocols.crypto.identity import normal_fingerprint, same_fingerprint
    from protocols.study.levels import guarded

    if not study.confidentiality.second_server:
        if typed is not None:
            raise InvalidInput(
                f"--guardian-fingerprint is given; study {study.name!r} has no guardian; allowed: to leave it out"
            )
        return
    level = guarded(study.confidentiality)
    if typed is None and not ask:
        raise InvalidInput(
            f"--guardian-fingerprint is missing; allowed: the fingerprint that {level.guardian!r} reads out by "
            "telephone (conclave-guardian show)"
        )
    if typed is None:
        typed = ask_fingerprint(
            f"\nFingerprint of the keys of {level.guardian}, as they read it out, in words or in digits"
        )
    if not same_fingerprint(typed, level.fingerprint):
        raise Refused(
            Code.WRONG_GUARDIAN,
            f"the study's keys of {level.guardian!r} have another fingerprint than {normal_fingerprint(typed)}; "
            "allowed: the guardian's own. Whoever sent the file may have put other keys in it: nothing was approved",
        )


def _queries_of_records(study: DeployedStudy, pool_file: Path | None, queries_file: Path | None) -> Blocks | None:
    """The queries of a study in which records vote; None where teachers do. Raises InvalidInput for a file too many or
    too few, and as read_blocks does."""
    from protocols.study.queries_file import blocks_of

    given = study.votes.given
    for name, file in (("--pool", pool_file), ("--queries", queries_file)):
        if file is not None and name != given:
            allowed = f"{given} FILE, from the operator" if given else "study.toml alone"
            raise InvalidInput(f"{name} {file} is given; allowed for study {study.name!r}: {allowed}")
    return blocks_of(study, queries_file) if study.votes.once else None


@click.command(epilog=EPILOG)
@click.argument("study")
@home_option
@json_option
def train(study: str, home: PartyHome, as_json: bool) -> None:
    """Train this hospital's teachers for an approved study. They stay here, and `run` uses them.

    \b
    Example:
      conclave-party train heart
    """
    from party.budget.policy import Policy
    from party.budget.spending import what_was_spent
    from protocols.study.votes import teacher_votes

    settings, found = home.settings(), home.find_study(study)
    with Policy(settings.policy) as policy:
        what_was_spent(home, policy).check(found.digest)
        own = [each for each in policy.own_approvals(home) if each.study == found.digest]
        known = next((each for each in own if each.data_set == settings.data.name), None)
    teacher_votes(found)
    if known is None or known.withdrawn:
        state = "was withdrawn" if known is not None else "is not approved by this home"
        code = Code.WITHDRAWN if known is not None else Code.NOT_APPROVED
        raise Refused(code, f"study {found.name!r} {state} for data set {settings.data.name!r}")
    with Policy(settings.policy) as policy:
        seats = _train(home, settings, found, policy)
    if as_json:
        print_json({"study": found.digest.hex(), "records_per_teacher": seats})
    else:
        click.echo(f"teachers of {found.name} are trained")
        say_next("conclave-party run")


def _figures(study: DeployedStudy, forecasts: list[Forecast]) -> dict[str, Any]:
    return {
        "study": study.digest.hex(),
        "lifetime": [
            {
                "unit": each.after.unit,
                "cap": dataclasses.asdict(each.after.cap),
                "share_reserved_before": each.before.share,
                "share_reserved_after": each.after.share,
                "epsilon_after": each.after.epsilon_reserved,
                "fits": each.fits,
            }
            for each in forecasts
        ],
    }
