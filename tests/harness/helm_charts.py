"""Renders the chart of deploy/helm without Helm: the few constructs that its templates use, in the words of jinja2."""

import re
from pathlib import Path
from typing import Any

import jinja2
import yaml

CHART = Path(__file__).parents[2] / "deploy" / "helm"
_TAG = re.compile(r"\{\{(-?)\s*(.*?)\s*\}\}")


def rendered(values: dict[str, Any], *, release: str) -> dict[str, dict[str, Any]]:
    """The manifests by kind, under the chart's own values and these. Raises ValueError for a construct that is new."""
    own = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    merged = own | {key: own[key] | new if isinstance(new, dict) else new for key, new in values.items()}
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((CHART / "templates").glob("*.yaml")):
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
        template = environment.from_string(_in_jinja(path.read_text(encoding="utf-8")))
        text = template.render(Values=merged, Release={"Name": release})
        found |= {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text) if manifest is not None}
    return found


def _in_jinja(text: str) -> str:
    ends: list[str] = []

    def tag(match: re.Match[str]) -> str:
        trim, said = match.groups()
        word, _, rest = said.partition(" ")
        if word in ("if", "range"):
            ends.append("endif" if word == "if" else "endfor")
            inner = f"if {_expression(rest)}" if word == "if" else f"for item in {_expression(rest)}"
        elif word == "else":
            inner = f"elif {_expression(rest.removeprefix('if '))}" if rest else "else"
        elif word == "end":
            inner = ends.pop()
        else:
            return f"{{{{{trim} {_expression(said)} }}}}"
        return f"{{%{trim} {inner} %}}"

    return _TAG.sub(tag, text)


def _expression(said: str) -> str:
    if match := re.fullmatch(r"and (\S+) \(not (\S+)\)", said):
        return f"{_expression(match[1])} and not {_expression(match[2])}"
    if match := re.fullmatch(r'eq (\S+) ("\w+")', said):
        return f"{_expression(match[1])} == {match[2]}"
    if match := re.fullmatch(r"(\S+) \| (upper|toJson)", said):
        return f"{_expression(match[1])} | {match[2].lower()}"
    if said == ".":
        return "item"
    if match := re.fullmatch(r"\$?\.((?:Values|Release)(?:\.\w+)+)", said):
        return match[1]
    raise ValueError(f"{said!r} is a construct of Helm that this does not know")
