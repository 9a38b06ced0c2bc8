"""A figure that depends on votes cannot stop a study, enter a ledger, or be written where it is not marked."""

import ast
import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from protocols.budgets.accountant import ACCOUNTANTS, Accountant
from protocols.ledger.ledger import Ledger
from protocols.research.private import Private
from tests.harness.amounts import nano
from tests.harness.refusals import refuses

FIGURE = Private(np.array([1.5, 2.0]))
# The report that marks what it shows; and the release of a sanitised figure, which pays for it.
MAY_REVEAL = {"simulations/report/private_section.py"}
# Its votes and data are public.
PUBLISHED_VOTES = "benchmarks/papers/"


@pytest.mark.parametrize(
    "use",
    [
        float,
        int,
        bool,
        list,
        len,
        hash,
        round,
        np.asarray,
        np.exp,
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        json.dumps,
        lambda figure: figure + 1,
        lambda figure: 1 - figure,
        lambda figure: np.ones(2) * figure,
        lambda figure: figure < 2,
        lambda figure: figure == figure,
        lambda figure: figure[0],
        lambda figure: f"{figure:.3f}",
        lambda figure: max(figure, 1.0),
        lambda figure: json.dumps({"epsilon": figure}),
    ],
)
def test_a_private_figure_is_no_number_no_array_and_no_json(use):
    with pytest.raises(TypeError):
        use(FIGURE)


def test_a_private_figure_shows_nothing_and_cannot_be_changed():
    assert "1.5" not in repr(FIGURE) + str(FIGURE)
    with refuses(AttributeError, "immutable"):
        FIGURE._value = 1


def test_what_is_computed_from_a_private_figure_is_private():
    total = FIGURE.map(np.sum)
    assert isinstance(total, Private)
    assert total.for_research() == 3.5
    assert FIGURE.join(FIGURE, np.add).for_research().tolist() == [3.0, 4.0]


def test_then_and_gather_stay_private():
    halves = FIGURE.then(lambda values: Private(values / 2))
    both = Private.gather([FIGURE, halves])
    assert isinstance(both, Private)
    assert [row.tolist() for row in both.for_research()] == [[1.5, 2.0], [0.75, 1.0]]


def test_a_ledger_takes_no_private_amount():
    with Ledger(":memory:") as ledger:
        with pytest.raises(TypeError):
            ledger.open_accounts({"p": Private(5)})
        ledger.open_accounts(nano({"p": 5}))
        with pytest.raises(TypeError):
            ledger.reserve(0, b"d", {"p": Private(3)}, b"", queries=[0], limit=2000)
        assert ledger.balance("p").spent == 0
        assert ledger.stored(0) is None


def test_no_accountant_that_charges_is_data_dependent():
    """Accountants see a mechanism and sensitivities, never votes: no parameter could hold them."""
    for account in ACCOUNTANTS.values():
        if isinstance(account, Accountant):
            names = set(account.query_cost.__annotations__) | set(account.affords.__annotations__)
            assert not names & {"counts", "votes", "labels", "answered"}


def test_only_the_marked_report_reveals_private_figures():
    """Reads the source of every package: `for_research` is called in MAY_REVEAL alone, and `_value` is nobody's."""
    root = Path(__file__).parents[4]
    found, reached = set(), set()
    for package in ("protocols", "runtime", "party", "coordinator", "guardian", "simulations", "conclave"):
        for path in (root / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "for_research" not in text and "_value" not in text:
                continue
            nodes = list(ast.walk(ast.parse(text)))
            named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            if "for_research" in named:
                found.add(path.relative_to(root).as_posix())
            calls = [node for node in nodes if isinstance(node, ast.Call)]
            named |= {one.value for call in calls for one in call.args if isinstance(one, ast.Constant)}
            if "_value" in named:
                reached.add(path.relative_to(root).as_posix())
    assert {path for path in found if not path.startswith(PUBLISHED_VOTES)} == MAY_REVEAL
    # The one way round it: the attribute, or its name as getattr takes it.
    assert reached == {"protocols/research/private.py"}
