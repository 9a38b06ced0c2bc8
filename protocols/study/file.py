"""The TOML file of a study: what a hospital reads and approves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, Final  # Any: what tomllib returns, checked below

from protocols.errors import DataUnavailable, InvalidInput
from protocols.mechanisms import Mechanism, check_view, make_mechanism
from protocols.reading import read_toml
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import LEVELS, Confidentiality, Level
from protocols.study.several_findings import WAYS, Asked
from protocols.study.study import Seat, Study, party_of
from protocols.study.terms import Feature, Terms
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.sums.judging import Evaluation

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


def read_deployed(
    path: Path, *, keys: Callable[[str], str | None] = lambda party: None, left_out: Mapping[str, object] = NOTHING
) -> DeployedStudy:
    """A study between organisations from its TOML file. Raises InvalidInput as read_study does, and without [terms]."""
    study = read_study(path, keys=keys, left_out=left_out)
    if not isinstance(study, DeployedStudy):
        raise InvalidInput(f"{path} has no [terms]; allowed: a study between organisations")
    return study


def read_study(
    path: Path, *, keys: Callable[[str], str | None] = lambda party: None, left_out: Mapping[str, object] = NOTHING
) -> Study:
    """A study from its TOML file; a DeployedStudy if it has [terms].

    keys: returns a party's signing_key, if the file leaves out that of its seats, or of its querier. left_out: keys of
    [terms] and their values, for those that the file leaves out; input_shape follows from the columns, if it has any.
    Raises InvalidInput for a missing, unknown or mistyped key, naming it.
    """
    try:
        table = read_toml(path)
    except (DataUnavailable, InvalidInput) as error:
        raise InvalidInput(f"study file {error}") from None
    seats = table.pop("party", [])
    if not (isinstance(seats, list) and all(isinstance(seat, dict) for seat in seats)):
        raise InvalidInput(f"study file {path}: parties must be [[party]] tables")
    named_keys = {number: seat.pop("signing_key") for number, seat in enumerate(seats) if "signing_key" in seat}
    roster = tuple(Seat(**_typed(Seat, seat, path)) for seat in seats)
    terms = table.get("terms")
    if terms is not None:
        if not isinstance(terms, dict):
            raise InvalidInput(f"study file {path}: terms is {terms!r}; allowed: a table [terms]")
        columns = terms.pop("feature", [])
        if not (isinstance(columns, list) and all(isinstance(column, dict) for column in columns)):
            raise InvalidInput(f"study file {path}: features must be [[terms.feature]] tables")
        features = tuple(Feature(**_typed(Feature, column, path)) for column in columns)
        width = {"input_shape": [sum(each.width for each in features)]} if features else {}
        if "findings" in terms:
            raise InvalidInput(f"study file {path}: findings stand in [terms]; allowed: before all tables")
        given = {**left_out, **width, **terms, "features": features, "findings": table.get("findings", [])}
        table["terms"] = Terms(**_typed(Terms, {"label": "", **given} if given["findings"] else given, path))
    table["votes"] = _votes(table, path)
    level = table.get("confidentiality")
    if level is not None:
        if not isinstance(level, dict):
            raise InvalidInput(f"study file {path}: confidentiality is {level!r}; allowed: a table [confidentiality]")
        name = level.pop("level", None)
        kind = LEVELS.get(str(name))
        if kind is None:
            raise InvalidInput(f"study file {path}: level is {name!r}; allowed: {', '.join(LEVELS)}")
        if "seat_keys" in level or (named_keys and not kind.signs):
            raise InvalidInput(f"study file {path}: keys of seats; allowed: signing_key of a [[party]] that signs")
        if kind.signs:
            found = (named_keys.get(at) or keys(party_of(seat.party)) for at, seat in enumerate(roster))
            level["seat_keys"] = tuple(key or "" for key in found)
        for who, key in kind.named_keys.items():
            if isinstance(level.get(who), str):
                level.setdefault(key, keys(level[who]) or "")
        table["confidentiality"] = kind(**_typed(kind, level, path))
    kind_of_study = Study if terms is None else DeployedStudy
    return kind_of_study(**_typed(kind_of_study, {**table, "roster": roster}, path))


def write_study(study: Study) -> str:
    """The study as TOML; read_study gives an equal study back."""

    def lines_of(table: dict[str, Any]) -> list[str]:
        return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items() if value is not None]

    values = asdict(study)
    values.pop("votes")
    seats, terms, level = values.pop("roster"), values.pop("terms", None), values.pop("confidentiality")
    if not study.findings:
        del values["findings"]
    for seat, key in zip(seats, level.pop("seat_keys", ()), strict=False):  # empty if nobody signs
        seat["signing_key"] = key
    terms_of_votes = study.votes.values
    tables = {key: value for key, value in terms_of_votes.items() if isinstance(value, dict)}
    lines = lines_of(values | {key: value for key, value in terms_of_votes.items() if key not in tables})
    for key, table in (tables | {"confidentiality": {"level": study.confidentiality.name, **level}}).items():
        lines += ["", f"[{key}]", *lines_of(table)]
    if terms is not None:
        features, findings = terms.pop("features"), terms.pop("findings")
        if findings:
            del terms["label"]
        lines += ["", "[terms]", *lines_of(terms)]
        for feature in features:
            lines += ["", "[[terms.feature]]", *lines_of(feature)]
    for seat in seats:
        lines += ["", "[[party]]", *lines_of(seat)]
    return "\n".join(lines) + "\n"


def _mechanism(table: object, view: object, path: Path) -> Mechanism:
    """The mechanism of the table [mechanism]: its name, and its own parameters."""
    if not (isinstance(table, dict) and isinstance(table.get("name"), str)):
        raise InvalidInput(f"study file {path}: mechanism is {table!r}; allowed: a table [mechanism] with its name")
    given = {key: value for key, value in table.items() if key != "name"}
    for key, value in given.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InvalidInput(f"study file {path}: mechanism: {key} is {value!r}; allowed: a number")
    return make_mechanism(table["name"], view=check_view(str(view)), **given)


def _votes(table: dict[str, Any], path: Path) -> Votes:
    """What votes, taken out of `table`: units, by the table [records]; else teachers, by the keys beside the study's.

    Raises InvalidInput for a key that is neither the study's nor its votes'.
    """
    own = [field.name for field in fields(DeployedStudy) if field.name not in ("votes", "roster")]
    given = {key: table.pop(key) for key in list(table) if key not in own}
    units = "records" in given
    sums = (["records", "evaluation"], " beside [records]")
    allowed, beside = sums if units else ([f.name for f in fields(TeacherVotes)], "")
    if unknown := sorted(set(given) - set(allowed)):
        raise InvalidInput(
            f"study file {path}: unknown key {unknown[0]!r}; allowed{beside}: {', '.join([*own, *allowed])}"
        )
    if not units:
        given["mechanism"] = _mechanism(given.get("mechanism"), given.get("view"), path)
        if "asks" in given:
            given["asks"] = _asks(given["asks"], path)
        return TeacherVotes(**_typed(TeacherVotes, given, path))
    for key, each in given.items():
        if not isinstance(each, dict):
            raise InvalidInput(f"study file {path}: {key} is {each!r}; allowed: a table [{key}]")
    judges = given.get("evaluation")
    evaluation = None if judges is None else Evaluation(**_typed(Evaluation, judges, path))
    return UnitSums(**_typed(UnitSums, given["records"] | {"evaluation": evaluation}, path))


def _asks(table: object, path: Path) -> Asked:
    """What a query asks, of the table [asks]: by, findings, and the sets of a powerset."""
    way = WAYS.get(str(table.get("by"))) if isinstance(table, dict) else None
    if way is None or not isinstance(table, dict):
        raise InvalidInput(f"study file {path}: asks is {table!r}; allowed: a table [asks] by {', '.join(WAYS)}")
    given, sets = {key: value for key, value in table.items() if key != "by"}, table.get("sets")
    if set(given) != {field.name for field in fields(way)} or type(given["findings"]) is not int:
        raise InvalidInput(f"study file {path}: asks is {table!r}; allowed: findings, and sets for powerset")
    if sets is None:
        return way(**given)
    whole = isinstance(sets, list) and all(isinstance(one, list) and {*map(type, one)} <= {int} for one in sets)
    if not whole:
        raise InvalidInput(f"study file {path}: asks: sets are {sets!r}; allowed: lists of positions of findings")
    return way(**{**given, "sets": tuple(tuple(one) for one in sets)})


def _typed(
    kind: type[Seat | Study | Votes | Evaluation | Terms | Feature | Confidentiality], table: dict[str, Any], path: Path
) -> dict[str, Any]:
    """The keyword arguments of `kind` in `table`, integers widened to float where a float is wanted."""
    wanted = {field.name: field for field in fields(kind)}
    unknown = set(table) - set(wanted)
    if unknown:
        raise InvalidInput(f"study file {path}: unknown key {sorted(unknown)[0]!r}; allowed: {', '.join(wanted)}")
    result: dict[str, Any] = {}
    for key, field in wanted.items():
        type_name = str(field.type)
        if key not in table and field.default is not MISSING:
            continue
        value = table.get(key)
        if value is None and "None" not in type_name:
            raise InvalidInput(f"study file {path}: key {key!r} is missing")
        if value is not None and "float" in type_name and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) < 2**53 else math.inf
        plain = type_name.removesuffix(" | None")
        element = _ELEMENTS.get(plain)
        if element and isinstance(value, list):
            value = tuple(float(each) if element is float and type(each) is int else each for each in value)
        needed = tuple if element else _PLAIN[plain]
        fits = isinstance(value, needed) and (needed is bool or not isinstance(value, bool))
        if element and isinstance(value, tuple):
            fits = all(isinstance(each, element) and not isinstance(each, bool) for each in value)
        if value is not None and not fits:
            raise InvalidInput(f"study file {path}: {key} is {value!r}; allowed: {type_name}")
        result[key] = value
    return result


_PLAIN: dict[str, type | UnionType] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "Terms": Terms,
    "StopRule": str,
    "Asked": Asked,
    "Votes": TeacherVotes | UnitSums,
    "Evaluation": Evaluation,
    "Confidentiality": Level,
    "Mechanism": Mechanism,
}
_ELEMENTS: dict[str, type] = {
    "tuple[str, ...]": str,
    "tuple[int, ...]": int,
    "tuple[float, ...]": float,
    "tuple[Seat, ...]": Seat,
    "tuple[Feature, ...]": Feature,
}
