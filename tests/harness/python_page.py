"""The page of the Python interface, made of its docstrings.

python tests/harness/python_page.py     rewrites it; test_public_interface.py compares it
"""

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path

import conclave

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "python.md"
_GROUPS = {
    "Labels of votes and budgets of your own": "label replay Labels Replay ABSTAIN NOT_ASKED",
    "Labels of records and budgets of your own": "label_by_records PoolLabels",
    "A released student": "predict",
    "A study": "define_study plan run write_study read_study Study StudyPlan Run",
    "Accounting alone": "rdp_curve epsilon_after queries_afforded mechanisms accountants RdpCurve",
    "delta as a function of epsilon": "privacy_curve privacy_loss_distribution PrivacyCurve",
    "Errors": "ConclaveError InvalidInput BudgetExceeded DataUnavailable DataCorrupt",
}
_VALUES = {"ABSTAIN": "asked, and no label was given", "NOT_ASKED": "not asked: a budget was out, or the study ended"}
_HEAD = """# The Python interface

What `import conclave` offers a researcher; everything else in the packages is internal. It calls the same code as
[`conclave-simulate`](command-line.md), so both give the same labels and spends. Install the extra `sim`; accounting
alone needs no extra. [A notebook](../notebooks/votes-to-labels.ipynb) goes from votes to labels, budgets and plots.

This page is made of the docstrings. `help(conclave.NAME)` has an example of each function.
"""


def page() -> str:
    """The whole page."""
    shown = [name for names in _GROUPS.values() for name in names.split()]
    assert sorted(shown) == sorted(conclave.__all__), "a name is missing here"
    parts = [_HEAD]
    for title, names in _GROUPS.items():
        shows = next((name for name in names.split() if ">>> " in (inspect.getdoc(getattr(conclave, name)) or "")), "")
        parts += [f"## {title}\n", *(_entry(name, example=name == shows) for name in names.split())]
    return "\n".join(parts)


def _entry(name: str, *, example: bool) -> str:
    """A name with its signature and docstring; the first of a group with its example, too."""
    one = getattr(conclave, name)
    if name in _VALUES:
        return f"### {name}\n\n`{one}` in labels: {_VALUES[name]}.\n"
    text = [f"### {name}\n", _text(one, example=example)]
    if inspect.isfunction(one):
        text.insert(1, f"```python\n{_signature(name, one)}\n```\n")
    elif not issubclass(one, Exception) and one.__module__.startswith("conclave"):
        methods = [each for each in vars(one).values() if inspect.isfunction(each) and each.__name__[0] != "_"]
        text += [f"`.{each.__name__}()`: {_text(each, example=False)}" for each in methods]
    return "\n".join(text)


def _signature(name: str, function: Callable[..., object]) -> str:
    """The names of the parameters with their defaults; the docstring says what they may be."""
    shown = list[str]()
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = "" if one.default is one.empty else f"={one.default!r}"
        shown.append(f"{'**' if one.kind is one.VAR_KEYWORD else ''}{one.name}{default}")
    returned = inspect.signature(function, eval_str=False).return_annotation.strip("'\"")
    whole = f"conclave.{name}({', '.join(shown)}) -> {returned}"
    return "\n".join(textwrap.wrap(whole, 100, subsequent_indent="    "))


def _text(one: object, *, example: bool) -> str:
    """The docstring as Markdown: its example as a block."""
    words, _, shown = (inspect.getdoc(one) or "").partition(">>> ")
    paragraphs = [" ".join(each.split()) for each in words.strip().split("\n\n")]
    text = "\n\n".join(textwrap.fill(each, 120, break_long_words=False, break_on_hyphens=False) for each in paragraphs)
    return f"{text}\n" + (f"\n```python\n>>> {shown.rstrip()}\n```\n" if example else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
