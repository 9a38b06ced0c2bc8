"""The table of accountants, and the names that flags and settings take."""

from protocols.budgets.accountant import ACCOUNTANTS
from protocols.research import DATA_DEPENDENT
from simulations.setup.accountants import accountant_table


def test_every_accountant_of_the_table_is_named_to_a_run_and_no_other() -> None:
    rows = accountant_table()
    assert [row.name for row in rows if row.charges] == list(ACCOUNTANTS)
    assert [row.name for row in rows if not row.charges] == list(DATA_DEPENDENT)
