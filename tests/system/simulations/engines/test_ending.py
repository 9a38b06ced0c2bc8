import signal
import subprocess
import sys

from simulations.engines.engine import end_all

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"


def test_a_process_that_does_not_end_in_time_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # from here on it ignores SIGTERM
        process.terminate()
        end_all([process], within_s=0.2)
        assert process.returncode == -signal.SIGKILL


def test_a_process_that_ends_keeps_its_exit_code() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        end_all([process], within_s=60.0)
        assert process.returncode == 3
