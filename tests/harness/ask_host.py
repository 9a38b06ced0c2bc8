"""`conclave-party ask` in a process that gets a signal at a chosen point; see test_ask_processes.

    python ask_host.py POINT SIGNAL ARGUMENTS...

Points: reserved (before a party hears of the batch), voted (its votes came and are charged), counting (amid the
conversation of the servers), told (labels are stored, parties are not told), writing (of the labels), training.
"""

import os
import signal
import sys

import party.commands.ask
from party.asking import asking, report
from party.commands.group import run_command
from protocols.wire.messages import Outcome, VoteRequest

CONVERSED = 6


def main(point: str, number: int, arguments: list[str]) -> int:
    def reached(here: str) -> None:
        if here == point:
            os.kill(os.getpid(), number)

    class Relayed(asking.Relayed):
        def __call__(self, requests):
            kind = {type(each) for each in requests.values()}
            reached("told" if kind == {Outcome} else "reserved")
            replies = super().__call__(requests)
            if kind == {VoteRequest}:
                reached("voted")
                Channel.after_votes = True
            return replies

    class Channel:
        """Counts what comes in the conversation that follows the votes."""

        after_votes = False

        def __init__(self, inner) -> None:
            self._inner, self._came = inner, 0

        def send(self, data):
            self._inner.send(data)

        def recv(self, limit):
            data = self._inner.recv(limit)
            self._came += 1
            if Channel.after_votes and self._came == CONVERSED:
                reached("counting")
            return data

    def counted(study, line):
        return _Wrapped(dial(study, line), Channel)

    dial, write, trained_kind = asking._dial, party.commands.ask.write_atomically, report.trained_kind

    def written(path, content):
        reached("writing")
        write(path, content)

    def kind(name, **named):
        reached("training")
        return trained_kind(name, **named)

    asking.Relayed, asking._dial = Relayed, counted
    party.commands.ask.write_atomically = written
    # The first look at the kind is before anything is asked.
    report.check_model, report.trained_kind = lambda name: None, kind
    return run_command(arguments)


class _Wrapped:
    def __init__(self, context, wrap) -> None:
        self._context, self._wrap = context, wrap

    def __enter__(self):
        return self._wrap(self._context.__enter__())

    def __exit__(self, *error):
        return self._context.__exit__(*error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], signal.Signals[sys.argv[2]], sys.argv[3:]))
