import subprocess
import sys

# Where an exception is raised in a finaliser, Python says so and goes on.
INTERRUPTED_IN_A_FINALISER = """
import os, signal
from runtime.exits import ended_by_interrupt

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

with ended_by_interrupt():
    Finalised()
    print("went on")
"""


def test_ctrl_c_ends_a_program_also_where_an_exception_would_be_lost():
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IN_A_FINALISER], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "\ninterrupted; run the same command again\n")
