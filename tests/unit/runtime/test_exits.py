"""What is said on standard error when a command fails."""

from protocols.errors import DataCorrupt
from runtime.exits import Exit, show_error


def test_a_message_that_quotes_a_file_gives_the_terminal_no_orders(capsys):
    assert show_error(DataCorrupt("a model's input '\x1b[2Jé\u202e', row 1\nrow 2\ud800")) == Exit.INVALID_INPUT
    assert capsys.readouterr().err.startswith("error [data_corrupt]: a model's input '?[2Jé?', row 1\nrow 2?\n")
