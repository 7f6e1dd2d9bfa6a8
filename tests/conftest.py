"""What every test process starts with: a home of its own, and no way to skip where skipping is forbidden."""

from __future__ import annotations

import atexit
import gc
import hashlib
import os
import resource
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import hypothesis
import psutil
import pytest
import warm
from homes import home  # noqa: F401  fixtures for every file: a home,
from postgres import begun, ledger_url  # noqa: F401  and a database of either kind

STORE = Path(__file__).parent / "accountant" / "store"
NO_SKIP = os.environ.get("DPSERVE_NO_SKIP") == "1"
OPEN, MANY = Path("/proc/self/fd"), 300  # files that a process of tests may leave open
MEMORY, ROOM = Path("/dev/shm"), 8 << 30  # bytes: a whole run takes about half of it, most of that PostgreSQL


OWN_CONFIG = "TESTS_OWN_CONFIG"  # where each test has a folder of its own


def _keep_files_in_memory() -> None:
    """Temporary files lie in memory where there is room for them and nobody said where else: a test outlives no power
    cut, and to write each ledger and key to a disk takes longer than all else that is done with it.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_mount() or not os.access(MEMORY, os.W_OK):
        return
    about = os.statvfs(MEMORY)
    runs_programs = not about.f_flag & os.ST_NOEXEC  # PostgreSQL's are copied
    if runs_programs and min(about.f_bavail * about.f_frsize, psutil.virtual_memory().available) > ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def _fence_environment() -> None:
    """Point every setting at a scratch folder of this process, before anything of ours or BentoML's is imported.

    A developer's own settings must not steer a test, and no test may touch the real home. `PROMETHEUS_MULTIPROC_DIR`
    is read when prometheus_client is first imported, hence here and not in a fixture.
    """
    scratch = Path(tempfile.mkdtemp(prefix="dpserve-tests-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    for name in [name for name in os.environ if name.startswith("DPSERVE_") and name != "DPSERVE_NO_SKIP"]:
        del os.environ[name]
    for name in ("DPSERVE_HOME", "BENTOML_HOME", "PROMETHEUS_MULTIPROC_DIR"):
        folder = scratch / name.lower()
        folder.mkdir(mode=0o700)
        os.environ[name] = str(folder)
    os.environ["XDG_CONFIG_HOME"] = os.environ[OWN_CONFIG] = str(scratch / "config")
    os.environ["BENTOML_DO_NOT_TRACK"], os.environ["ORT_DISABLE_TELEMETRY"] = "true", "1"  # tests load both themselves
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads spin while they wait, and take processors from the others
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of hundreds of processes would compile our rooms anew
    sys.dont_write_bytecode = False  # and each run of the tests would compile them all


def _allow_many_files() -> None:
    """Some systems begin at 1,024: SQLite keeps what was closed under a lock open, and a process has thousands of
    ledgers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


_keep_files_in_memory()
_allow_many_files()
_fence_environment()
gc.disable()  # until all tests are collected

# No test asserts times: a deadline would.
hypothesis.settings.register_profile("dpserve", deadline=None)
hypothesis.settings.load_profile("dpserve")


def pytest_configure(config):
    """In a log, whose lines nobody's terminal wraps, the line of a failure has room for its reason. All workers of
    pytest-xdist ask one warm process."""
    if config.getoption("numprocesses", None) and warm.SHARED not in os.environ:
        warm.share()
    if config.pluginmanager.has_plugin("terminalreporter") and not sys.stdout.isatty():
        config.get_terminal_writer().fullwidth = 200


def _own(node: pytest.Collector | pytest.Item) -> frozenset[str]:
    return frozenset(marker.name for marker in node.own_markers)


@cache
def _above(node: pytest.Collector | None) -> frozenset[str]:
    """Names of the markers of a file, its classes and its folders: asked once, not once for each of its tests."""
    return frozenset() if node is None else _own(node) | _above(node.parent)


def pytest_collection_modifyitems(items):
    """Files with long tests go first, or one process would be left with them at the end. What PostgreSQL is asked as
    SQLite was counts as slow: to start it takes seconds.
    """
    marks = {item: _own(item) | _above(item.parent) for item in items}
    long = {item.path for item in items if marks[item] & {"slow", "server", "statistical"}}
    place = {path: number for number, path in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: (item.path not in long, place[item.path], "last" in marks[item]))
    for item in items:
        if hasattr(item, "callspec") and "postgresql" in map(str, item.callspec.params.values()):
            item.add_marker("slow")


def pytest_collection_finish():
    """What was collected, a million objects, stays: it need not be looked through again and again for garbage."""
    import quick_ledgers  # of ours: after the environment was fenced, and where tests run

    quick_ledgers.install()
    gc.freeze()  # garbage as well, which is little: to tell it from the rest takes a second
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_runtest_setup(item):
    """A folder of its own for what a user keeps: tests copy homes, whose ledgers then go on in many ways. And
    `system("jq", "openssl")`: skip, by name, where one of these programs is not installed.
    """
    if os.environ.get("XDG_CONFIG_HOME", "").startswith(os.environ[OWN_CONFIG]):
        name = hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]
        os.environ["XDG_CONFIG_HOME"] = f"{os.environ[OWN_CONFIG]}/{name}"
    sys.modules["quick_ledgers"].on = STORE not in item.path.parents
    for marker in item.iter_markers("system"):
        absent = [program for program in marker.args if shutil.which(program) is None]
        if absent:
            pytest.skip(f"not installed: {', '.join(absent)}")


def pytest_runtest_teardown(item, nextitem):
    """Ledgers that nobody closed keep their files open until what refers to itself is collected, which is rare here."""
    ends = nextitem is None or nextitem.path != item.path
    if ends and OPEN.is_dir() and len(os.listdir(OPEN)) > MANY:
        gc.collect()


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With DPSERVE_NO_SKIP=1 a skipped test or file is a failure that names it and its reason."""
    expected_to_fail = hasattr(report, "wasxfail")
    if NO_SKIP and report.outcome == "skipped" and not expected_to_fail:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: DPSERVE_NO_SKIP=1 forbids skipping ({reason})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    _refuse_skip(report)
    return report
