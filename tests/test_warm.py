"""A command that is a fork of the warm process is like any other: streams, folder, environment, exit code, signals."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import warm

ECHO = """
import os, sys
print(sys.argv[1:], os.getcwd(), os.environ["SAID"], sys.stdin.read(), __name__)
print("aside", file=sys.stderr)
sys.exit({status})
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", [warm.python, lambda: [sys.executable]], ids=["warm", "real"])
@pytest.mark.parametrize("given", ["script", "code"])
@pytest.mark.parametrize(("status", "code", "aside"), [("3", 3, ""), ("None", 0, ""), ("'why'", 1, "why\n")])
def test_it_runs_and_ends_as_a_real_one(tmp_path, command, given, status, code, aside):
    script = tmp_path / "echo.py"
    script.write_text(ECHO.format(status=status))
    asked = [*command(), *([str(script)] if given == "script" else ["-c", script.read_text()]), "a b", ""]
    done = subprocess.run(
        asked, cwd=tmp_path, env={"SAID": "this"}, input="in", capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (code, f"['a b', ''] {tmp_path} this in __main__\n")
    assert done.stderr == f"aside\n{aside}"


@pytest.mark.parametrize("command", [warm.python, lambda: [sys.executable]], ids=["warm", "real"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_by_the_signal_that_ended_it(tmp_path, command, number):
    script = tmp_path / "dies.py"
    script.write_text(f"import os\nprint('here', flush=True)\nos.kill(os.getpid(), {int(number)})\n")
    done = subprocess.run([*command(), str(script)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (-number, "here\n")


def test_a_signal_is_passed_on(tmp_path):
    script = tmp_path / "waits.py"
    steps = (
        "import time",
        "try:",
        "    print('here', flush=True)",
        "    time.sleep(60)",
        "finally:",
        "    print('over')",
    )
    script.write_text("\n".join(steps))
    process = subprocess.Popen([*warm.python(), str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    said, why = process.communicate(timeout=300)
    assert (said, process.returncode) == ("over\n", 1)
    assert "KeyboardInterrupt" in why
