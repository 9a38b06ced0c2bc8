"""What the reference has of the program itself: flags, exit codes, stops, accountants, ranges, codes.

python tests/system/docs/flag_tables.py     rewrites them; test_reference.py compares them
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # codes of one enum or the other

import click

from coordinator.commands.group import cli as coordinator_cli
from guardian.commands import cli as guardian_cli
from party.commands.group import cli as party_cli
from protocols.labelling.schedule import STOP_MEANINGS
from protocols.mechanisms import mechanism_parameters
from protocols.ranges import RANGES
from protocols.refusals.table import Cost, Reader, sections
from runtime.exits import Exit, SimulationExit
from simulations.commands.group import cli as simulate_cli
from simulations.datasets import DATASETS
from simulations.setup.accountants import accountant_table
from simulations.setup.experiment import SETTINGS

_REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
PAGE = _REFERENCE / "command-line.md"
ACCOUNTANTS_PAGE = _REFERENCE / "accountants.md"
WIRE_PAGE = _REFERENCE / "wire.md"
OUTPUTS_PAGE = _REFERENCE / "outputs.md"
ERRORS_PAGE = _REFERENCE / "errors.md"
HOST = ("data_dir", "cache_dir", "engine", "workers")
_SHORT = 24  # characters of a next step that is said again rather than referred to
_MANY = 10  # choices above which the page leaves their list to --help
_DATASETS = " | ".join(DATASETS)
_MARKED = re.compile(r"(<!-- flags: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_PROGRAM = re.compile(r"(<!-- commands: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_READERS = {
    Reader.COMMAND: "C", Reader.NODE: "H", Reader.OPERATOR: "O", Reader.GUARDIAN: "G", Reader.ASKER: "A",
    Reader.RELEASE: "R",
}  # fmt: skip
_PROGRAMS = {"party": party_cli, "coordinator": coordinator_cli, "guardian": guardian_cli, "simulate": simulate_cli}
_ACCOUNTANTS = re.compile(r"(<!-- accountants -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_CODES = re.compile(r"(<!-- codes: ([\w ,]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_EXITS = re.compile(r"(<!-- exit codes: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
EXIT_MEANINGS: Mapping[Exit, str] = {
    Exit.DONE: "done",
    Exit.UNEXPECTED: "unexpected error: please report it",
    Exit.WRONG_USE: "wrong use of the command line",
    Exit.INVALID_INPUT: "invalid input: a value, a key or a file",
    Exit.REFUSED: "refused, by the other side or by a policy",
    Exit.BUDGET: "a budget or a lifetime cap does not allow it; nothing was charged",
    Exit.STORAGE: "storage: the disk is full, or a file cannot be written",
    Exit.NETWORK: "the network or the other side failed, or (`label --wait`, `resume --wait`) a labelling stopped "
    "before its end",
    Exit.VERIFICATION: "verification failed: something differs from what was signed",
    Exit.PARTLY: "verified except what the output lists as NOT CHECKED",
    Exit.INTERRUPTED: "Ctrl-C. SIGTERM ends `run` and `serve` with 0",
}
SIMULATION_EXIT_MEANINGS: Mapping[SimulationExit, str] = {
    SimulationExit.DONE: "done",
    SimulationExit.OTHER: "any other error of Conclave",
    SimulationExit.INVALID_INPUT: "a value or flag is wrong",
    SimulationExit.ABSENT: "a data set or file of votes is missing; the message says how to get it",
    SimulationExit.CORRUPT: "a file is corrupt: checksum, format or values",
    SimulationExit.BUDGET: "a budget affords nothing",
    SimulationExit.STORAGE: "the disk is full or cannot be written to",
    SimulationExit.ENGINE: "the engine stopped working",
    SimulationExit.REFUTED: "only `audit`: a mechanism was shown to leak more than it claims. All results were still "
    "printed and written",
    SimulationExit.INTERRUPTED: "interrupted by Ctrl-C or SIGTERM; [resume](../how-to/resume-a-run.md)",
}
_EXIT_MEANINGS: dict[str, Mapping[Any, str]] = {"servers": EXIT_MEANINGS, "simulate": SIMULATION_EXIT_MEANINGS}
_STOPS = re.compile(r"(<!-- stops -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_RANGES = re.compile(r"(<!-- ranges -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def options(command: str) -> list[click.Option]:
    """The options of a sub-command, in the order of its help."""
    return [one for one in commands("simulate")[command].params if isinstance(one, click.Option)]


def groups() -> dict[str, list[click.Option]]:
    """The tables of the page by name: settings and host as `run` has them, then what each command has alone.

    A flag of a command without the settings is its own, even where it has the name of one.
    """
    run, said = options("run"), {*SETTINGS, *mechanism_parameters()}
    tables = {"settings": [one for one in run if one.name in said], "host": [one for one in run if one.name in HOST]}
    shared = {*said, *HOST}
    for name in commands("simulate"):
        common = shared if shared <= {one.name for one in options(name)} else set()
        tables[name] = [one for one in options(name) if one.name not in common]
    return tables


def page_with_tables(text: str) -> str:
    """The page with every list of flags between its marks as the command line is now."""
    tables = groups()
    said = {_line(option) for option in (*tables["settings"], *tables["host"])}
    text = _MARKED.sub(lambda mark: mark[1] + "\n" + _simulated(mark[2], tables[mark[2]], said) + "\n" + mark[4], text)
    helps: dict[str, str] = {}
    text = _PROGRAM.sub(lambda mark: mark[1] + "\n" + _commands(mark[2], helps) + "\n" + mark[4], text)
    return _EXITS.sub(lambda mark: mark[1] + "\n" + _exits(mark[2]) + "\n" + mark[4], text)


def _simulated(name: str, rows: list[click.Option], said: set[str]) -> str:
    """A line a flag; in one line those that are as `run` has them, or that every command has."""
    everywhere = [option for option in rows if option.opts[0] in ("--json", "--quiet")]
    new = [option for option in rows if option not in everywhere]
    own = new if name in ("settings", "host") else [option for option in new if _line(option) not in said]
    same = [f"`{option.opts[0]}`" for option in (*(each for each in new if each not in own), *everywhere)]
    return "".join([f"- Also {', '.join(same)}.\n"] if same else []) + _lines(own)


def page_with_accountants(text: str) -> str:
    """The page with the table of accountants between its marks as the program has it now."""
    return _ACCOUNTANTS.sub(lambda mark: mark[1] + "\n" + _accountants() + "\n" + mark[3], text)


def page_with_ranges(text: str) -> str:
    """The page with the list of ranges between its marks as the program has it now."""
    return _RANGES.sub(lambda mark: mark[1] + "\n" + _ranges() + "\n" + mark[3], text)


def page_with_stops(text: str) -> str:
    """The page with the list of reasons to stop between its marks as the program has it now."""
    listed = "".join(f"- `{reason}`: {meaning}\n" for reason, meaning in STOP_MEANINGS.items())
    return _STOPS.sub(lambda mark: mark[1] + "\n" + listed + "\n" + mark[3], text)


def page_with_codes(text: str) -> str:
    """The page with the codes of each section between its marks as `protocols/refusals` has them now."""
    return _CODES.sub(lambda mark: mark[1] + "\n" + _codes(mark[2]) + "\n" + mark[4], text)


def _exits(programs: str) -> str:
    rows = [f"| {code:d} | {meaning} |" for code, meaning in _EXIT_MEANINGS[programs].items()]
    return "\n".join(["| code | meaning |", "|---|---|", *rows]) + "\n"


def _codes(section: str) -> str:
    """A line a code: who sees it, whether what was reserved stands (*), what it means, what to do, any other cost.

    A next step that stands in an earlier line of the section is said by that line's code.
    """
    lines, first = [], dict[str, str]()
    for code, said in sections()[section].items():
        readers = "".join(_READERS[each] for each in said.seen_by) + ("*" if said.cost is Cost.STANDS else "")
        cost = "" if said.cost in (Cost.NOTHING, Cost.STANDS) else f" Cost: {said.cost}."
        earlier = first.setdefault(said.next_step, code)
        step = said.next_step if earlier == code or len(said.next_step) < _SHORT else f"as `{earlier}`"
        after = "" if step == "nothing" else f" Next: {step}."
        lines.append(f"- `{code}` ({readers}): {said.means}.{after}{cost}")
    return "\n".join(lines) + "\n"


def _ranges() -> str:
    """A line a range, with all integers that have it."""
    found: dict[str, list[str]] = {}
    for (where, field), allowed in RANGES.items():
        said = f"{_power(allowed.lowest)} to {_power(allowed.highest)}"
        found.setdefault(said, []).append(f"`{where}.{field}`")
    return "".join(f"- {said}: {', '.join(fields)}\n" for said, fields in found.items())


def _power(value: int) -> str:
    """A number as people write it: beside a power of two where it is one."""
    for beside, said in ((0, ""), (1, " - 1"), (2, " - 2")):
        if value + beside >= 2**16 and (value + beside).bit_count() == 1:
            return f"2^{(value + beside).bit_length() - 1}{said}"
    return f"-({_power(-value)})" if value < -1 else str(value)


def commands(program: str) -> dict[str, click.Command]:
    """Every command of conclave-PROGRAM by its words, sub-commands too."""
    found: dict[str, click.Command] = {}

    def walk(words: str, command: click.Command) -> None:
        if not isinstance(command, click.Group):
            found[words] = command
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None  # it was listed
            walk(f"{words} {name}".lstrip(), inner)

    walk("", _PROGRAMS[program])
    return found


def _commands(program: str, helps: dict[str, str]) -> str:
    """Every command: what it takes, and what it does (the first sentence of its help, which has its flags).

    helps: what a command does, and the first command that does it: another program's says it is the same.
    """
    told = []
    for words, command in commands(program).items():
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        takes = " ".join(one.make_metavar(click.Context(command)) for one in arguments)
        says = " ".join((command.help or "").partition("\b")[0].split()).partition(". ")[0].removesuffix(".")
        name = f"conclave-{program} {words}"
        first = helps.setdefault(says, name)
        text = f"{takes and f'`{takes}`: '}{says if first == name else f'As `{first}`'}."
        told.append(f"### {words}\n\n{text}\n")
    return "\n".join(told)


def _accountants() -> str:
    lines = []
    for row in accountant_table():
        source = row.source
        if source.startswith("docs/"):
            source = f"[{Path(source).stem.replace('-', ' ')}]({source.replace('docs/', '../', 1)})"
        kind = f"{'charges' if row.charges else 'analyses'}, {'publishable' if row.charges else 'private'}"
        about = "; ".join([kind, f"`{row.statement}`", row.unit, row.view, f"noise {row.noise}", source])
        lines.append(f"- `{row.name}`: {about}\n")
    return "".join(lines)


def _lines(rows: list[click.Option]) -> str:
    return "".join(f"{_line(option)}\n" for option in rows)


def _line(option: click.Option) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    meaning, value = _meaning(option).replace(_DATASETS, "the name of a [data set](datasets.md)"), _value(option)
    meaning = re.sub(r"(?<=[\w)]) \| ", ", ", meaning)
    if isinstance(option.type, click.Choice) and len(option.type.choices) > _MANY:
        meaning = f"{meaning.partition(':')[0]}; `--help` has the list."
    if option.name == "broken":  # what is installed here
        meaning = f"{meaning.rstrip('.').partition(': ')[0]}; `--help` has the list."
    return f"- {flags}{value and f' ({value})'}: {meaning}".rstrip()


def _meaning(option: click.Option) -> str:
    """The help, with the default in brackets where click would add it in a way of its own."""
    text = option.help or ""
    return f"{text.removesuffix('.')} [{option.default}]." if option.show_default else text


def _value(option: click.Option) -> str:
    """The choices of an option, where its meaning does not list them."""
    if not isinstance(option.type, click.Choice) or len(option.type.choices) > _MANY:
        return ""
    listed = " | ".join(option.type.choices)
    return "" if listed in (option.help or "") else ", ".join(f"`{choice}`" for choice in option.type.choices)


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    WIRE_PAGE.write_text(page_with_ranges(WIRE_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    ACCOUNTANTS_PAGE.write_text(page_with_accountants(ACCOUNTANTS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    OUTPUTS_PAGE.write_text(page_with_stops(OUTPUTS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    ERRORS_PAGE.write_text(page_with_codes(ERRORS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
