"""The sub-command audit: prints lower bounds beside the claimed epsilons; exit code 8 if a claim is refuted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar  # Any: values of flags, as click gives them

import click
from click.core import ParameterSource

from protocols.errors import InvalidInput
from protocols.mechanisms import MECHANISMS, VIEWS, check_view, mechanism_parameters
from protocols.study.several_findings import WAYS
from protocols.study.votes import TeacherVotes, UnitSums
from protocols.votes import LATTICE
from runtime.exits import SimulationExit
from runtime.files import write_atomically
from simulations.audit.breaks import BREAKS
from simulations.audit.settings import NOISES, AuditSettings, Kind

if TYPE_CHECKING:
    from simulations.audit.audit import AuditResult

# The parameters that are noise scales, with the mechanisms that take them.
_NOISE = {
    name: takers
    for name, takers in mechanism_parameters().items()
    if name != "sigma" and all(each.role == "noise" for _, each in takers)
}
# What describes a mechanism and its votes.
_DESCRIBED = ("view", "queries", "classes", "weight", "sigma", "rate")
F = TypeVar("F", bound=Callable[..., object])


def _noise_flags(function: F) -> F:
    """Adds a flag for each noise scale."""
    for name, takers in reversed(_NOISE.items()):
        each = takers[0][1]
        default = "1/sigma" if each.unit == "per vote" else "1.5 times --sigma"
        text = f"{', '.join(mechanism for mechanism, _ in takers)}: {each.meaning} [{default}]."
        function = click.option(f"--{name.replace('_', '-')}", help=text, type=float)(function)
    return function


def _breaks() -> str:
    said = [f"{name}, {one.meaning}" for table in BREAKS.loadable().values() for name, one in table.items()]
    return ": " + "; ".join(said) if said else ""


@click.command(
    name="audit",
    epilog=f"Exit codes: 0 no claim is refuted; {SimulationExit.REFUTED:d} more leakage than claimed, or another law.",
)
@click.option("--votes-by", help="Who votes: teachers on every query, or each private record once.",
              type=click.Choice(("teacher", "record")), default="teacher", show_default=True)  # fmt: skip
@click.option("--findings-by", help="Teachers' votes on --classes findings of a record, 2 to 4, in place of one label: "
              f"{', '.join(WAYS)}, with commas.")  # fmt: skip
@click.option("--mechanism", "mechanisms", multiple=True, help=f"{' | '.join(MECHANISMS)}; repeat it, or give a list "
              "with commas [all].")  # fmt: skip
@click.option("--view", help="What is seen: labels only, or the noisy histogram [both].", type=click.Choice(VIEWS))
@click.option(
    "--trials", help="Trials on each side of a pair of neighbouring votes.", default=200_000, show_default=True
)
@click.option("--queries", help="Queries in the composition, all on the same votes.", default=8, show_default=True)
@click.option("--classes", help="Number of classes.", default=3, show_default=True)
@click.option("--weight", help="Total weight of the unit whose vote moves, votes.", default=1.0, show_default=True)
@click.option("--sigma", help="Scale, in votes, of all noise that no other flag sets.", default=4.0,
              show_default=True)  # fmt: skip
@_noise_flags
@click.option("--epsilon", help="--votes-by record: the budget of the audited party, which has the least noise that it "
              "affords.", default=1.0, show_default=True)  # fmt: skip
@click.option("--rate", help="Secret coins, with Gaussian noise: probability that the unit's vote enters, rounded to "
              "2^-20; 1 for no coins.", default=0.5, show_default=True)  # fmt: skip
@click.option("--delta", help="delta at which epsilons are compared; a small one needs many trials.", default=0.01,
              show_default=True)  # fmt: skip
@click.option("--confidence", help="Probability that all lower bounds hold and no law is rejected by chance.",
              default=0.999, show_default=True)  # fmt: skip
@click.option("--noise", help="seeded: the nodes' sampler with a seeded stream; system: with the operating "
              "system's generator; fast: NumPy's normals.", type=click.Choice(NOISES), default="seeded",
              show_default=True)  # fmt: skip
@click.option("--seed", help="Seed of noise and coins.", default=0, show_default=True)
@click.option("--break", "broken", help="Break what is audited on purpose; `pip install ./benchmarks` in a clone adds "
              "breaks" + _breaks() + ".")  # fmt: skip
@click.option("--out", help="Folder for audit.json, the figure and a page.", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the audit as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
@click.pass_context
def audit_flags(context: click.Context, /, **flags: Any) -> None:
    """Run each mechanism on worst-case neighbouring votes: prints a lower bound on epsilon beside the claimed one.

    With --votes-by record: a study of record votes, on neighbouring data of one record or patient.

    \b
    Examples:
      conclave-simulate audit
      conclave-simulate audit --mechanism gnmax --trials 1000000 --out audit
      conclave-simulate audit --mechanism gnmax --queries 1 --classes 2 --sigma 1.4
      conclave-simulate audit --votes-by record
    """
    from simulations.audit.audit import run_audit
    from simulations.progress import Reporter

    given = [n for n in flags if context.get_parameter_source(n) is ParameterSource.COMMANDLINE]
    settings = (_of_findings if flags["findings_by"] else _AUDITS[flags["votes_by"]])(flags, given)
    out = Path(flags["out"]) if flags["out"] else None
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out} is not empty; allowed: a new folder")
    with Reporter(quiet=bool(flags["quiet"])).stages() as progress:
        audit = run_audit(settings, progress=progress)
    if out is not None:
        _write(audit, out)
    if flags["as_json"]:
        click.echo(json.dumps(audit.to_json(), indent=2))
    else:
        _print(audit)
        if audit.failed:
            click.echo(f"FAILED: {audit.failure}")
        if out is not None:
            click.echo(f"written  {out / 'audit.json'}; open {out / 'report.html'}")
    if audit.failed:
        context.exit(SimulationExit.REFUTED)


def _of_teachers(flags: dict[str, Any], given: list[str]) -> AuditSettings:
    """An audit of mechanisms. Raises InvalidInput, also for a given flag that no audited mechanism takes."""
    from simulations.audit.teacher_votes import AuditedMechanisms, audited_mechanisms

    if "epsilon" in given:
        raise InvalidInput("--epsilon has no effect without --votes-by record; leave one of them out")
    names = [name.strip() for one in flags["mechanisms"] for name in one.split(",") if name.strip()]
    audited = AuditedMechanisms(
        mechanisms=tuple(dict.fromkeys(names or audited_mechanisms())),
        views=VIEWS if flags["view"] is None else (check_view(flags["view"]),),
        parameters={name: flags[name] for name in _NOISE if flags[name] is not None},
        rate=_on_lattice(flags["rate"]),
        **{name: flags[name] for name in ("queries", "classes", "weight", "sigma")},
    )
    settings, taken = _settings(audited, flags), set()
    for target in audited.targets():
        if target.mechanism.holding(view=target.view, on_lattice=False, secret_coins=True):
            taken.add("rate")
        for name, each in target.mechanism.parameters(view=target.view).items():
            if each.role == "noise":
                taken.add(name if name in audited.parameters else "sigma")
    for name in ("sigma", *_NOISE, "rate"):
        if name in given and name not in taken:
            mechanisms = ", ".join(audited.mechanisms)
            raise InvalidInput(f"--{name.replace('_', '-')} has no effect on {mechanisms} here; leave it out")
    return settings


def _of_findings(flags: dict[str, Any], given: list[str]) -> AuditSettings:
    """An audit of votes on several findings. Raises InvalidInput."""
    from simulations.audit.finding_votes import AuditedFindings

    idle = [name for name in given if name in ("mechanisms", "votes_by", "epsilon", "rate", *_NOISE)]
    if idle:
        flag = idle[0].removesuffix("s") if idle[0] == "mechanisms" else idle[0]
        raise InvalidInput(f"--{flag.replace('_', '-')} has no effect with --findings-by; leave one of them out")
    audited = AuditedFindings(
        ways=tuple(dict.fromkeys(each.strip() for each in flags["findings_by"].split(","))),
        views=VIEWS if flags["view"] is None else (check_view(flags["view"]),),
        findings=flags["classes"],
        **{name: flags[name] for name in ("queries", "weight", "sigma")},
    )
    return _settings(audited, flags)


def _of_records(flags: dict[str, Any], given: list[str]) -> AuditSettings:
    """An audit of record votes. Raises InvalidInput."""
    from simulations.audit.unit_sums import AuditedUnitSums

    idle = [name for name in given if name in ("mechanisms", "findings_by", *_DESCRIBED, *_NOISE)]
    if idle:
        flag = idle[0].removesuffix("s") if idle[0] == "mechanisms" else idle[0]
        raise InvalidInput(f"--{flag.replace('_', '-')} has no effect with --votes-by record; leave one of them out")
    return _settings(AuditedUnitSums(epsilon=flags["epsilon"]), flags)


_AUDITS = {TeacherVotes.by: _of_teachers, UnitSums.by: _of_records}


def _settings(of: Kind, flags: dict[str, Any]) -> AuditSettings:
    names = ("trials", "delta", "confidence", "noise", "seed", "broken")
    return AuditSettings(of=of, **{name: flags[name] for name in names})


def _on_lattice(rate: float) -> float:
    """The nearest rate that a study may have, a multiple of 1/LATTICE; a value out of range is returned unchanged."""
    return max(1, round(rate * LATTICE)) / LATTICE if 0 < rate <= 1 else rate


def _print(audit: AuditResult) -> None:
    from runtime.printing import wrapped
    from simulations.audit.report import audit_sentences, audit_tables
    from simulations.report.terminal import print_rows

    for each in audit_tables(audit):
        print_rows(each.title, list(each.columns), [list(row) for row in each.rows])
    for said in audit_sentences(audit):
        click.echo(wrapped(said))


def _write(audit: AuditResult, out: Path) -> None:
    from simulations.audit.report import audit_figure, audit_page
    from simulations.plots.style import write_figure

    figure = audit_figure(audit)
    write_atomically(out / "audit.json", json.dumps(audit.to_json(), indent=2) + "\n")
    write_figure(figure, out / "figures" / "audit")
    write_atomically(out / "report.html", audit_page(audit, figure))
