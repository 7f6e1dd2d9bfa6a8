"""What leaves this repository: the wheel, the lock files, the bento's list, and texts that work on any machine."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from small_home import write_files

from accountant.system import extensions as installed
from accountant.system.lazy_import import EXTRAS
from training.datasets.drafts.sample import ROWS, SCHEMA

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("accountant", "models", "training", "serving", "dpserve")  # the four rooms, and the client
LOCKS = ("requirements/run.txt", "requirements/dev.txt", "serving/requirements.txt", "requirements/dask.txt")
IMAGES = {"image": [], **{f"image-{extra}": [extra] for extra in ("dask", "duckdb", "grpc", "hsm")}}
PYTHONS = ("3.11", "3.12", "3.13")

# Spelled in pieces, so that this file passes its own check.
REGISTRY = re.compile("|".join(("py" r"pi\.org", "python" r"hosted\.org", "registry" r"\.npm", "deb" r"\.debian")))
MACHINE = re.compile(r"(?<![\w.])/(work|farm)/")

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
VERIFIER = tomllib.loads((ROOT / "verify" / "pyproject.toml").read_text("utf-8"))
EXTENSIONS = {  # room -> what its distribution says of itself
    room: tomllib.loads((ROOT / "extensions" / folder / "pyproject.toml").read_text("utf-8"))
    for room, folder in {"local": "parties", "dpserve_cluster": "cluster", "dpserve_platform": "platform"}.items()
}


def unfit(text: str) -> list[str]:
    """Lines that name a package registry's address or a path of one particular machine."""
    return [line for line in text.splitlines() if REGISTRY.search(line) or MACHINE.search(line)]


def unlocked(lock: str) -> list[str]:
    """Entries of a requirement file that are more or less than a name, a version, a marker and hashes."""
    entries = lock.replace("\\\n", " ").splitlines()
    pinned = re.compile(r"[\w.-]+(\[[\w,.-]+\])?==[\w.!+]+\s*(;[^\\]*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    return [entry for entry in entries if entry.strip() and not pinned.fullmatch(entry)]


def pins(lock: str) -> list[Requirement]:
    return [Requirement(line.rstrip(" \\")) for line in lock.splitlines() if re.match(r"[\w.-]+==", line)]


def environment_of(python: str) -> dict[str, str]:
    """Linux with that Python, as markers see it."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }


def versions(lock: str, python: str) -> dict[str, str]:
    """Name to version of what the file installs on Linux with that Python."""
    there = environment_of(python)
    chosen = [pin for pin in pins(lock) if not pin.marker or pin.marker.evaluate(there)]
    assert len({canonicalize_name(pin.name) for pin in chosen}) == len(chosen)
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in chosen}


def tracked() -> list[Path]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy: a build leaves files beside its sources, and those end up in the next one."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", source / "serving" / "docs", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", source / "serving" / "docs")  # as `make wheel` does
    shutil.copytree(ROOT / "examples" / "data", source / "training" / "datasets" / "drafts" / "sample")
    made = [sys.executable, str(ROOT / "docs" / "reference.py"), str(source / "serving" / "docs")]
    subprocess.run(made, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(out.glob("*.whl"))) as opened:
        yield opened


def built(source: Path, folder: str, room: str) -> Path:
    """The wheel of a distribution whose sources lie beside the rooms, as `make wheel` builds it."""
    shutil.copy(ROOT / "LICENSE", source)
    for name in (folder, room):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    out = source / "out"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source / folder)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def small_wheel(tmp_path_factory):
    """The verifier's wheel."""
    return built(tmp_path_factory.mktemp("small"), "verify", "dpserve_verify")


@pytest.mark.parametrize("room", EXTENSIONS)
def test_an_extension_is_a_distribution_of_its_own(room):
    """Of the same version; the extra of its name asks for it, and it for dpserve."""
    extension = EXTENSIONS[room]["project"]
    kind = extension["name"].removeprefix("dpserve-")
    assert extension["version"] == PROJECT["version"]
    assert PROJECT["optional-dependencies"][kind] == [f"{extension['name']}=={extension['version']}"]
    (core,) = map(Requirement, extension["dependencies"])
    assert (core.name, str(core.specifier)) == ("dpserve", f"=={extension['version']}")
    assert {name for points in extension["entry-points"].values() for name in points} == {kind}
    assert kind in installed.EXTENSIONS
    assert kind in re.search(r"^EXTENSIONS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)[1].split()


@pytest.mark.parametrize("room", EXTENSIONS)
def test_an_extensions_wheel_holds_its_room_and_what_plugs_in(room, tmp_path):
    made = built(tmp_path, f"extensions/{EXTENSIONS[room]['project']['name'].removeprefix('dpserve-')}", room)
    there = {path.relative_to(ROOT).as_posix() for path in tracked()}
    with zipfile.ZipFile(made) as opened:
        names = set(opened.namelist())
        (points,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        said = configparser.ConfigParser(delimiters="=")
        said.read_string(opened.read(points).decode())
    info = points.partition("/")[0]
    assert {name for name in names if not name.startswith(info)} == {
        name for name in there if name.startswith(f"{room}/")
    }
    assert {group: dict(said[group]) for group in said.sections()} == EXTENSIONS[room]["project"]["entry-points"]


def test_both_distributions_have_one_version():
    small = VERIFIER["project"]
    assert small["version"] == PROJECT["version"]
    assert f"{small['name']}=={small['version']}" in PROJECT["dependencies"]
    assert [Requirement(line).name for line in small["dependencies"]] == ["cryptography"]


def test_the_small_wheel_holds_the_verifier_alone(small_wheel):
    there = {path.relative_to(ROOT).as_posix() for path in tracked()}
    with zipfile.ZipFile(small_wheel) as opened:
        names = set(opened.namelist())
    info = f"dpserve_verify-{PROJECT['version']}.dist-info"
    assert f"{info}/licenses/LICENSE" in names
    assert {name for name in names if not name.startswith(info)} == {
        name for name in there if name.startswith("dpserve_verify/")
    }


@pytest.mark.slow
def test_wheel_holds_the_four_rooms_and_nothing_else(wheel):
    top = {name.partition("/")[0] for name in wheel.namelist()}
    assert top == {*ROOMS, f"dpserve-{PROJECT['version']}.dist-info"}


@pytest.mark.slow
def test_wheel_holds_every_file_of_the_rooms(wheel):
    there = {path.relative_to(ROOT).as_posix() for path in tracked() if path.relative_to(ROOT).parts[0] in ROOMS}
    assert there - set(wheel.namelist()) == {"serving/requirements.txt"}
    assert {"serving/docs/index.md", "serving/docs/mkdocs.yml", "serving/docs/img/rooms.svg"} <= set(wheel.namelist())
    made = {f"serving/docs/reference/{name}.md" for name in ("python", "commands", "rest", "errors", "learners")}
    assert made | {"serving/docs/changelog.md"} <= set(wheel.namelist())
    assert "### Client.train" in wheel.read("serving/docs/reference/python.md").decode()
    assert "serving/docs/reference.py" not in wheel.namelist()
    assert not [name for name in wheel.namelist() if name.startswith("serving/docs/player/")]
    sample = "training/datasets/drafts/sample"
    assert wheel.read(f"{sample}/{ROWS}") == (ROOT / "examples" / "data" / ROWS).read_bytes()
    assert f"{sample}/{SCHEMA}" in wheel.namelist()


def test_every_folder_of_code_is_a_listed_package():
    """A folder without `__init__.py` would be a namespace, into which any folder of that name mixes its modules."""
    code = [path.relative_to(ROOT) for path in tracked() if path.suffix == ".py"]
    folders = {path.parent for path in code if path.parts[0] in ROOMS}
    assert {".".join(folder.parts) for folder in folders} == set(PYPROJECT["tool"]["setuptools"]["packages"])
    small = {path.parent for path in code if path.parts[0] == "dpserve_verify"}
    assert {".".join(folder.parts) for folder in small} == set(VERIFIER["tool"]["setuptools"]["packages"])
    for room, extension in EXTENSIONS.items():
        folders |= (own := {path.parent for path in code if path.parts[0] == room})
        assert {".".join(folder.parts) for folder in own} == set(extension["tool"]["setuptools"]["packages"])
    assert [folder.as_posix() for folder in folders if folder / "__init__.py" not in code] == []


def test_wheel_says_what_it_is(wheel):
    info = f"dpserve-{PROJECT['version']}.dist-info"
    said = HeaderParser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert not any(line.startswith("Private") for line in said.get_all("Classifier", []))
    assert said["Requires-Python"] == "<3.14,>=3.11"
    assert said["License-Expression"] == "Apache-2.0"
    assert "dpserve = serving.cli.app:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert {f"{info}/licenses/{name}" for name in ("LICENSE", "NOTICE")} <= set(wheel.namelist())


@pytest.mark.slow
def test_wheel_works_in_a_venv_of_its_own(wheel, small_wheel, tmp_path):
    """As pip installs it, beside the dependencies that are here: from help to a certified model, no source near."""
    place, env = tmp_path / "venv", {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    put = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(place / "bin" / "python")]
    subprocess.run(
        [*put, "install", "--quiet", "--no-index", "--no-deps", str(small_wheel), wheel.filename], check=True, env=env
    )
    (inside,) = place.glob("lib/python3*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():  # ours are no part of it
        if "dpserve" not in path.name and not (inside / path.name).exists():
            (inside / path.name).symlink_to(path)
    env |= {"DPSERVE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def run(*words):
        done = subprocess.run(
            [place / "bin" / "dpserve", *words], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = subprocess.run(
        [place / "bin" / "python", "-c", "import accountant, dpserve, serving; print(serving.__file__)"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert where.stdout.startswith(str(inside))
    assert "train" in run("--help")
    assert run("--version").split() == ["dpserve", PROJECT["version"]]
    run("init")
    files = write_files(tmp_path / "files")
    rows = ["--data", str(files / "rows.parquet"), "--schema", str(files / "schema.yaml")]
    run("dataset", "register", "adult", *rows, "--epsilon", "3", "--delta", "1e-6", "--unit", "record")
    assert "name adult" in run("train", "adult", "--learner", "lazybb", "--epsilon", "0.5", "--set", "rounds=20")
    assert "verified" in run("verify", str(tmp_path / "home" / "models" / "adult" / "1"))


def test_the_citation_names_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])


def test_no_file_names_a_registry_or_one_machine():
    found = {}
    for path in tracked():
        try:
            lines = unfit(path.read_text("utf-8"))
        except UnicodeDecodeError:
            lines = unfit(path.read_bytes().decode("latin-1"))
        if lines:
            found[path.relative_to(ROOT).as_posix()] = lines[:3]
    assert found == {}


@pytest.mark.parametrize("text", ["see https://py" + "pi.org/simple", "open /wo" + "rk/main/x", "(/fa" + "rm/y)"])
def test_unfit_line_is_found(text):
    assert unfit(f"fine\n{text}\n") == [text]


@pytest.mark.parametrize("text", ["/home/me/work/x", "frame/work/", "https://example.org/work/"])
def test_fit_line_is_left_alone(text):
    assert unfit(text) == []


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_pins_and_hashes_everything(lock):
    text = (ROOT / lock).read_text("utf-8")
    assert unlocked(text) == []
    assert "://" not in text
    assert len(pins(text)) > 50


@pytest.mark.parametrize(
    "entry",
    [
        "numpy==2.4.6",
        "numpy>=2 --hash=sha256:" + "0" * 64,
        "numpy==2.4.6 --hash=md5:" + "0" * 32,
        "numpy @ file:x --hash=sha256:" + "0" * 64,
        "--index-url x",
        "--find-links x",
        "-e .",
    ],
)
def test_loose_entry_is_found(entry):
    good = "scipy==1.17.1 ; python_full_version < '3.12' \\\n    --hash=sha256:" + "a" * 64
    assert unlocked(f"{good}\n{entry}\n") == [entry]


@pytest.mark.parametrize("python", PYTHONS)
def test_locks_agree(python):
    run, dev, serve, cluster = (versions((ROOT / lock).read_text("utf-8"), python) for lock in LOCKS)
    assert run.items() <= dev.items()
    assert run.items() <= cluster.items() <= dev.items()
    assert serve.items() <= dev.items()
    assert run.keys() - serve.keys() == {"setuptools", "wheel"}
    assert {"bentoml", "uv", "skl2onnx"} <= run.keys()


RUN = ["train", "serve", "doors", "bento", "sklearn", "client", "postgres", "notebook"]
HEAVY = {"scipy", "scikit-learn", "vl-convert-python", "bentoml", "uv", "numba", "pyarrow", "skl2onnx", "opendp"}


def test_a_base_installation_brings_nothing_that_it_does_not_need():
    """And what `later` and `load` say of a module that is not there names a package that an extra asks for."""
    assert HEAVY & {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]} == set()
    for package, extra in EXTRAS.values():
        asked = [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
        asked += [Requirement(line) for each in asked for line in more_of(each)]
        assert package in {each.name for each in asked}, extra


def more_of(requirement):
    """What extras of dpserve bring that an extra asks for."""
    return [line for extra in requirement.extras for line in PROJECT["optional-dependencies"].get(extra, [])]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        (LOCKS[0], RUN),
        (LOCKS[1], [*RUN, "duckdb", "stats", "hsm", "dask", "dev"]),
        (LOCKS[2], RUN),
        (LOCKS[3], [*RUN, "dask"]),
    ],
)
def test_lock_satisfies_the_project(lock, extras, python):
    """The lock is no older than pyproject.toml; `make lock` mends it."""
    chosen = versions((ROOT / lock).read_text("utf-8"), python)
    asked = PROJECT["dependencies"] + [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    asked = [line for line in asked if not line.startswith("dpserve")]  # of this repository
    there = environment_of(python)
    lines = [line for line in map(Requirement, asked) if not line.marker or line.marker.evaluate(there)]
    wrong = [line for line in lines if chosen.get(canonicalize_name(line.name)) not in line.specifier]
    assert wrong == []


@pytest.mark.parametrize("lock", IMAGES)
def test_an_image_holds_what_the_doors_need_and_no_more(lock):
    text = (ROOT / f"requirements/{lock}.txt").read_text("utf-8")
    assert unlocked(text) == []
    chosen, dev = versions(text, "3.13"), versions((ROOT / LOCKS[1]).read_text("utf-8"), "3.13")
    assert chosen.items() <= dev.items()
    extras = ["train", "doors", "client", "postgres", "notebook", *IMAGES[lock]]
    asked = PROJECT["dependencies"] + [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    names = {canonicalize_name(Requirement(line).name) for line in asked} - {"dpserve-verify"}
    assert names <= chosen.keys()
    useless = {"uv", "bentoml", "nvidia-ml-py", "watchfiles", "skl2onnx", "pip", "setuptools", "wheel"}
    assert useless & chosen.keys() == set()


def test_no_accelerator_packages_are_locked():
    locked = {canonicalize_name(pin.name) for pin in pins((ROOT / LOCKS[1]).read_text("utf-8"))}
    # a reader of temperatures, and a client over HTTP: neither holds code for an accelerator
    found = {name for name in locked if name.startswith(("nvidia-", "torch", "triton"))}
    assert found <= {"nvidia-ml-py", "tritonclient"}


def test_bento_takes_the_rooms_and_the_lock():
    bento = yaml.safe_load((ROOT / "bentofile.yaml").read_text("utf-8"))
    assert {f"/{room}/" for room in (*ROOMS, "dpserve_verify")} <= set(bento["include"])
    assert [pattern for pattern in bento["include"] if not pattern.startswith("/")] == []  # or tests come along
    assert bento["python"] == {"requirements_txt": LOCKS[2], "lock_packages": False}
    module, name = bento["service"].split(":")
    assert re.search(rf"^(class )?{name}\b", (ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"), re.M)


SKIPPING = """
import pytest

def test_skips():
    pytest.skip("no promtool")

@pytest.mark.xfail(reason="known", strict=True)
def test_expected():
    assert False
"""


@pytest.mark.slow
@pytest.mark.parametrize(("no_skip", "code", "counts"), [("0", 0, "1 skipped"), ("1", 1, "1 failed")])
def test_skip_is_a_failure_where_it_is_forbidden(tmp_path, monkeypatch, no_skip, code, counts):
    monkeypatch.setenv("DPSERVE_NO_SKIP", no_skip)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "helpers"))
    (tmp_path / "test_one.py").write_text(SKIPPING)
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert counts in done.stdout
    assert "1 xfailed" in done.stdout
    assert ("test_one.py::test_skips" in done.stdout and "no promtool" in done.stdout) == (no_skip == "1")


@pytest.mark.slow
def test_skipped_file_is_a_failure_where_it_is_forbidden(tmp_path, monkeypatch):
    monkeypatch.setenv("DPSERVE_NO_SKIP", "1")
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "helpers"))
    (tmp_path / "test_one.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "no_such_module" in done.stdout
