"""Nothing is sent anywhere, by us or by what we depend on: docs/nothing-is-sent.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import loopback
import pyarrow.parquet as pq
import pytest
from small_home import DATA, ROOT, records, write_files

STORY = ROOT / "tests" / "helpers" / "quiet_story.py"
# What a user has of ours outside of DPSERVE_HOME, each named by docs/nothing-is-sent.md; the second is BentoML's own.
DECLARED = (".config/dpserve/", "bentoml/prometheus_multiproc_dir/", ".cache/dpserve-compiled/")
CALLS = "connect,sendto,sendmsg,sendmmsg"


def told_outside(trace: str) -> list[str]:
    """Lines of strace that speak to another machine, or to a name server wherever it is; a socket of Unix or of the
    kernel is neither."""
    there = re.compile(r"sin6?_port=htons\((\d+)\).*?\"([^\"]+)\"")
    found = [(line, there.search(line)) for line in trace.splitlines()]
    own = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    return [line for line, address in found if address and (address[2] not in own or address[1] == "53")]


def test_an_address_outside_and_a_name_server_are_seen():
    at = '{sa_family=AF_INET, sin_port=htons(%d), sin_addr=inet_addr("%s")}, 16) = -1 ENETUNREACH'
    six = '{sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "%s", &sin6_addr)'
    lines = [f"7 connect(3, {at}" % each for each in ((53, "127.0.0.1"), (443, "20.42.73.24"), (80, "169.254.169.254"))]
    lines += [f"7 connect(3, {six % '2603:1030::1'}", f"7 sendto(3, 0x1, 40, MSG_NOSIGNAL, {at % (53, '10.0.0.2')}"]
    quiet = [f"7 connect(3, {at}" % (3000, "127.0.0.1"), f"7 connect(3, {six % '::1'}"]
    quiet += ['7 connect(3, {sa_family=AF_UNIX, sun_path="/run/x"}, 110) = 0']
    assert told_outside("\n".join([*lines, *quiet])) == lines


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.system("strace", "unshare")
def test_a_day_of_it_asks_no_name_and_leaves_no_file(tmp_path):
    """From an empty home to a served model, by `dpserve serve` and by `bentoml serve`, in a network without a route and
    with no variable set for it: no name is looked up, no connection tried, and a user keeps what the page declares.
    """
    network = loopback.command()
    if not network:
        pytest.skip("no network namespace can be made here")
    files, user, left = write_files(tmp_path / "files"), tmp_path / "user", tmp_path / "left"
    pq.write_table(pq.read_table(DATA / "adult_test.parquet").slice(0, 20), files / "people.parquet")
    (files / "record.json").write_text(json.dumps(records(1)[0]))
    user.mkdir()
    left.mkdir()
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment |= {"HOME": str(user), "TMPDIR": str(left), "DPSERVE_HOME": str(tmp_path / "home")}
    watched = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", f"trace={CALLS}", "-e", "signal=none"]
    watched += ["-o", str(tmp_path / "trace"), sys.executable, str(STORY), str(files)]
    done = subprocess.run(
        [*network, *watched], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trace = (tmp_path / "trace").read_text()
    assert "127.0.0.1" in trace  # it sees what is asked here
    assert told_outside(trace) == []
    kept = [path.relative_to(user).as_posix() for path in user.rglob("*") if path.is_file()]
    assert [path for path in kept if not path.startswith(DECLARED)] == []
    assert [path.name for path in left.rglob("*") if path.is_file()] == []
