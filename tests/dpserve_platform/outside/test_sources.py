"""Learners of several files: an installed package from its entry point to a certificate, a folder, and what is refused.
None of their lines runs where the rows are."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from decimal import Decimal

import ledgers
import pytest
from small_home import dpserve

from dpserve_platform.outside import admitted, sources
from dpserve_platform.outside.sandbox import OutsideLearner
from dpserve_platform.outside.sources import source_of
from dpserve_platform.replay import subjects
from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from models.store.loading import load_of_home
from serving.cli.app import run
from training.planning.plans import plan
from training.requests import JobRequest
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Rehearsal

pytestmark = pytest.mark.home("prepared")
EXAMPLE = (ledgers.ROOT / "examples" / "naive_bayes.py").read_text()
RAN = "\ntry:\n    open({place!r}, 'a').close()\nexcept PermissionError:\n    pass\n"


def files(mark) -> dict[str, str]:
    """A package of the example in parts, each of which leaves a mark where it runs unsealed."""
    ran = RAN.format(place=str(mark))
    return {
        "tinybayes/__init__.py": "from tinybayes.deep import odds\n" + ran,
        "tinybayes/learner.py": "from .deep.odds import GRID as grid\n"
        + EXAMPLE.replace("GRID = 1 << 16  # parts of a logit", "GRID = grid")
        + ran,
        "tinybayes/deep/__init__.py": ran,
        "tinybayes/deep/odds.py": "GRID = 1 << 16\n" + ran,
        "tinybayes/words.txt": "data",
    }


def write(folder, texts) -> None:
    for name, text in texts.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that pip installed from a wheel of it, and where its lines leave a mark."""
    wheel, target, mark = tmp_path / "tinybayes-1.2-py3-none-any.whl", tmp_path / "site", tmp_path / "ran"
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: tinybayes\nVersion: 1.2\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "[dpserve.learners]\ntiny = tinybayes.learner:NaiveBayes\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, text in {
            **files(mark),
            **{f"tinybayes-1.2.dist-info/{name}": text for name, text in about.items()},
        }.items():
            packed.writestr(name, text)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-compile", "--target", str(target), str(wheel)], check=True)
    monkeypatch.syspath_prepend(str(target))
    yield target, mark
    assert not mark.exists()
    assert not [name for name in sys.modules if name.startswith("tinybayes")]


def test_an_installed_package_leads_to_a_certificate(home, installed, capsys):
    target, _ = installed
    admit = ["learner", "admit", "tiny", "--name", "tiny", "--reason", "was read", "--neighbours", "2"]
    assert run(admit) == 0, capsys.readouterr()
    source = source_of("tiny")
    for line in (
        "train adult --learner outside --set code=tiny --set prior=2 --epsilon 0.5",
        f"verify {home.models}/adult/1",
    ):  # in a process that has not the package: what was admitted runs
        done = dpserve(home.path, *line.split())
        assert done.returncode == 0, (line, done.stderr)
    public = load_of_home(home, home.models / "adult" / "1", "adult").certificate.form.public
    assert (public.hyperparameters["author"], public.hyperparameters["code"]) == ("tinybayes 1.2", source.digest)
    kept = home.path / admitted.FOLDER / source.digest / admitted.TEXT
    assert sorted(json.loads(kept.read_text())["files"]) == sorted(name for name in files("") if name.endswith(".py"))
    (target / "tinybayes" / "deep" / "odds.py").write_text("GRID = 1 << 15\n")
    assert source_of("tiny").digest != source.digest  # each file counts
    kept.write_text(kept.read_text().replace("1 << 16", "1 << 15"))
    with pytest.raises(ModelInvalid, match="not what"):
        plan(home, JobRequest("adult", "outside", "0.5", parameters={"code": "tiny"}))


def test_a_folder_is_checked_as_its_parts_are(tmp_path, capsys):
    mark = tmp_path / "ran"
    write(tmp_path, files(mark))
    (tmp_path / "tinybayes" / "__init__.py").write_text("from .learner import NaiveBayes\n")
    reference = f"{tmp_path}/tinybayes/:NaiveBayes"
    assert run(["learner", "check", reference, "--neighbours", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"]["digest"] == source_of(reference).digest
    (tmp_path / "tinybayes" / "learner.py").write_text("import sqlite3\n")
    public = Public.of(
        parse_schema(subjects.SCHEMA).question(None), Relation.ADD_REMOVE, Budget.of("1", "0.000001"), False
    )
    with pytest.raises(InputError, match="No module named|PermissionError"):
        OutsideLearner(source_of(reference)).learn(Rehearsal(public, Decimal(1)))
    assert not mark.exists()


BAD = {
    "no package": (lambda place: (place / "__init__.py").unlink(), "a folder with __init__.py"),
    "compiled": (lambda place: (place / "deep" / "fast.so").write_bytes(b""), "deep/fast.so is compiled"),
    "compiled python": (lambda place: (place / "fast.pyc").write_bytes(b""), "fast.pyc is compiled"),
    "a link out": (lambda place: (place / "more.py").symlink_to(ledgers.ROOT / "conftest.py"), "more.py is a link"),
    "a folder that is a link": (lambda place: (place / "more").symlink_to(place.parent), "more is a link"),
    "many files": (lambda place: [(place / f"a{n}.py").touch() for n in range(sources.MOST_FILES)], "more than 100"),
    "long files": (
        lambda place: [(place / f"a{n}.py").write_text("#" * (sources.LONGEST_TEXT // 2)) for n in range(2)],
        "at most 262144",
    ),
    "a long file": (lambda place: (place / "a.py").write_text("#" * (sources.LONGEST_TEXT + 1)), "a.py is longer"),
    "no text": (lambda place: (place / "a.py").write_bytes(b"\xff\xfe"), "UnicodeDecodeError"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_by_people_is_refused(name, tmp_path):
    write(tmp_path, files(tmp_path / "ran"))
    source_of(f"{tmp_path}/tinybayes/")
    spoil, words = BAD[name]
    spoil(tmp_path / "tinybayes")
    with pytest.raises(InputError, match=words):
        source_of(f"{tmp_path}/tinybayes/")


def test_a_learner_of_one_file_has_the_digest_that_it_had():
    source = source_of(f"{ledgers.ROOT}/examples/naive_bayes.py:NaiveBayes")
    assert source.text == EXAMPLE
    assert source.digest == hashlib.sha256(f"NaiveBayes\n{EXAMPLE}".encode()).hexdigest()
