"""release and verify: publish what a study labelled, and check what was published."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coordinator.commands.group import home_option
from protocols.errors import InvalidInput
from protocols.plural import counted
from protocols.refusals.code import Code
from runtime.cli import EPILOG, json_option
from runtime.exits import Exit
from runtime.printing import print_json, say_next

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome


@click.command(epilog=EPILOG)
@click.argument("study")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write [release-STUDY]; it must not exist.")
@click.option(
    "--earlier",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Folder of another coordinator's earlier release on the same data; its own are named by themselves.",
)
@click.option(
    "--patient-of",
    "named",
    multiple=True,
    metavar="A,B,...",
    help="State the guarantee of a patient known to all of these hospitals; repeatable.",
)
@click.option(
    "--unproven",
    multiple=True,
    metavar="SEAT",
    help="State that no receipt covers this seat's charges; give every such seat.",
)
@click.option("--labels-only", is_flag=True, help="Release the labels without a student.")
@home_option
@json_option
def release(
    study: str,
    out: Path | None,
    earlier: tuple[Path, ...],
    named: tuple[str, ...],
    unproven: tuple[str, ...],
    labels_only: bool,
    home: CoordinatorHome,
    as_json: bool,
) -> None:
    """Write the signed release of STUDY: labels, student, privacy statement, and the evidence for them.

    Where records vote: the noisy sums, the queries, and the soft labels that are made of them.

    \b
    Examples:
      conclave-coordinator release heart
      conclave-coordinator release heart --out releases/heart-2 --earlier releases/heart-1 --patient-of a,b
    """
    from coordinator.labelling.study_creation import stored_pool
    from coordinator.labelling.training import kept_student
    from coordinator.release.folder import read_json
    from coordinator.release.release import make_release, officers_file_of
    from coordinator.store.store import Store, check_labelled_here
    from protocols.release.manifest import STATEMENT_FILE

    home.settings()
    target = out or Path(f"release-{study}")
    if target.exists():
        raise InvalidInput(f"{target} exists; allowed: a new --out, so that no release is overwritten")
    with Store(home) as store:
        check_labelled_here(store.study(study))
        labelled = store.labelled(study)
    trained = None
    if not labels_only:
        pool = stored_pool(labelled.pool, labelled.study)
        trained = kept_student(home.study(study) / "student", labelled, pool)
    written = make_release(
        labelled,
        out=target,
        key=home.key(),
        certificate=home.certificate(),
        authority=home.authority(),
        trained=trained,
        earlier=earlier,
        own=sorted(home.studies.glob("*/released")),
        keep=home.released(study),
        named=[each.split(",") for each in named],
        unproven=unproven,
        now=datetime.datetime.now(datetime.UTC),
    )
    if as_json:
        print_json(
            {"release": str(written), "labels": int((labelled.labels >= 0).sum()), "student": trained is not None}
        )
        return
    what = f"{counted(int((labelled.labels >= 0).sum()), 'label')}"
    if labelled.cells is not None:
        what = f"the noisy sums, and soft labels of {labelled.study.terms.pool_size} public records,"
    click.echo(f"released {what} in {written}; open {written / 'privacy.html'}")
    before = [each["name"] for each in read_json(written / STATEMENT_FILE)["earlier_releases"]["releases"]]
    click.echo(f"together with the earlier releases: {', '.join(before)}" if before else "no earlier release is named")
    click.echo(f"for the data-protection officer, to be filled in: {officers_file_of(written)}")
    with_pool = f" --pool {labelled.pool}" if trained is not None or labelled.cells is not None else ""
    say_next(f"conclave-coordinator verify {written} --authority {home.authority_file}{with_pool}")


@click.command(epilog=EPILOG)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--authority",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The consortium's certificate, from a node of your hospital or the operator [the copy in the folder, which "
    "proves nothing].",
)
@click.option(
    "--pool",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The study's public pool, without which a student, and soft labels of records, are not checked in full.",
)
@json_option
def verify(folder: Path, authority: Path | None, pool: Path | None, as_json: bool) -> int:
    """Check a release in FOLDER: signature, files, log, receipts, charges, figures. Needs no home and no network.

    Without --authority it says whether the folder is consistent, and not who signed it. The exit code is 0 only where
    everything was checked: 9 where a check was not made in full, 8 where one failed.

    \b
    Example:
      conclave-coordinator verify release-heart --authority authority.pem
    """
    from coordinator.release.verify import AUTHORITY, verify_release

    checks = verify_release(folder, authority, pool=pool)
    failed = [check for check in checks if check.passed is False]
    partly = [check.name for check in checks if check.passed is None]
    ends = Exit.VERIFICATION if failed else Exit.PARTLY if partly else Exit.DONE
    if as_json:
        verified = ends is Exit.DONE
        print_json({"verified": verified, "not_checked": partly, "checks": [asdict(check) for check in checks]})
        return ends
    for check in checks:
        state = {True: "holds ", False: "FAILED", None: "NOT CHECKED"}[check.passed]
        click.echo(f"{state}  {check.name}: {check.message}", err=not check.passed)
        if check.next_step:
            click.echo(f"        next: {check.next_step}", err=True)
    if failed:
        click.echo(
            f"error [{Code.VERIFICATION_FAILED}]: {len(failed)} of {counted(len(checks), 'check')} failed in {folder}",
            err=True,
        )
        say_next(f"{failed[0].next_step}", err=True)
    elif AUTHORITY in partly:
        rest = [name for name in partly if name != AUTHORITY]
        but = f"; not checked: {', '.join(rest)}" if rest else ""
        click.echo(f"NOT VERIFIED: the folder agrees with itself, and nothing shows who signed it{but}")
    elif partly:
        click.echo(f"verified except {', '.join(partly)}: see what was not checked above")
    else:
        click.echo("verified: the folder is as the coordinator signed it, and its ledgers add up")
    return ends
