"""The verifier where nothing else is installed: every vector has the verdict that it has to have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from vectors import FOLDER

from accountant.privacy.worst_range import worst_range as by_numpy
from dpserve_verify.command.program import main
from dpserve_verify.privacy.adaptive_opinion import worst_range

ROOT = Path(__file__).resolve().parents[2]
VECTORS = [(each.parent.name, json.loads(each.read_text())) for each in sorted(FOLDER.glob("*/expected.json"))]
LAYERS = {"log", "figures", "budgets", "rules", "epsilon", "curve", "pairs"}
LAYERS |= {"signature", "subject", "proof", "binding", "standing"}
CODES = {"sound": 0, "forged": 4}

# Run in a process whose path holds the standard library, the sources of the verifier, and cryptography with what it
# needs; whatever else it would import is not there.
RUN = """
import contextlib, io, json, os, sys
from pathlib import Path
from dpserve_verify.command.program import main
from dpserve_verify.certificates.certificate import recompute
from dpserve_verify.certificates.predicate import ClaimForm, MechanismForm
from dpserve_verify.errors import VerificationError

folder = Path(sys.argv[1])
codes = {}
for each in sorted(folder.glob("*/expected.json")):
    here, kind = each.parent, json.loads(each.read_text())["kind"]
    if kind == "claim":
        body = json.loads((here / "statement.json").read_text())["predicate"]
        try:
            recompute(ClaimForm.read(body["claim"]), [MechanismForm.read(run) for run in body["mechanisms"]])
            codes[here.name] = 0
        except VerificationError as error:
            codes[here.name] = error.exit_code
        continue
    os.environ["XDG_CONFIG_HOME"] = str(Path("seen", here.name).absolute())  # each a history of its own
    path = here / ("ledger" if kind == "ledger" else "model.onnx")
    with contextlib.redirect_stdout(io.StringIO()):
        codes[here.name] = main([str(path), "--trust", str(here / "trust.json"), "--json"])
tops = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(json.dumps({"codes": codes, "modules": sorted(top for top in tops if not top.startswith("_"))}))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What a Python says of all vectors that has cryptography alone."""
    place = tmp_path_factory.mktemp("alone")
    for name in ("cryptography", "cffi", "pycparser"):  # what pip installs with it
        for file in distribution(name).files or ():
            top = file.parts[0]
            if not top.endswith(".dist-info") and top != ".." and not (place / top).exists():
                (place / top).symlink_to(distribution(name).locate_file(top))
    (place / "dpserve_verify").symlink_to(ROOT / "dpserve_verify")
    command = [sys.executable, "-S", "-I", "-c", f"import sys; sys.path.append({str(place)!r})\n{RUN}", str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=place)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_vector_has_its_verdict_with_cryptography_alone(alone):
    assert len(VECTORS) >= 95
    expected = {name: CODES[each["verdict"]] for name, each in VECTORS} | {
        "unknown-kind": 1
    }  # a newer version must be asked
    assert {name: code for name, code in alone["codes"].items() if code != expected[name]} == {}
    assert alone["codes"].keys() == expected.keys()
    assert all(set(each["by"]) <= LAYERS for _, each in VECTORS)


@pytest.mark.slow
def test_nothing_else_was_loaded(alone):
    assert set(alone["modules"]) <= {"cryptography", "dpserve_verify", "cffi"}


@pytest.mark.parametrize(("cells", "step"), [(1, 0.01), (7, 0.004), (24, 0.01), (60, 0.02)])
def test_numpy_and_the_standard_library_play_the_same_game(cells, step):
    slow = quick = [0.0] * 300
    for _ in range(6):
        slow, quick = worst_range(slow, cells, step), by_numpy(quick, cells, step)
        assert slow == pytest.approx(quick, rel=1e-12, abs=1e-15)
    assert slow[0] > 0


def test_checkpoints_and_keys_that_are_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    place = FOLDER / "tiles"
    words = [str(place / "ledger" / "checkpoint"), "--trust", str(place / "trust.json"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["size"] == 11
    assert main([str(place / "tiles"), "--keys", str(place / "trust.json")]) == 0
    assert "sound" in capsys.readouterr().out
    other = FOLDER / "checkpoint-of-another-key"
    assert main([str(place / "ledger" / "checkpoint"), "--trust", str(other / "trust.json")]) == 4
    assert capsys.readouterr().out.startswith("NOT VERIFIED: ")
    assert main([words[0], "--trust", str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize(("vector", "code"), [("four-jobs", 0), ("overspent", 4)])
def test_a_reader_that_hangs_up_changes_no_verdict(vector, code):
    """As `dpserve-verify FOLDER | head` does: nothing on stderr, and the exit code of the verdict."""
    reading, writing = os.pipe()
    os.close(reading)
    place = FOLDER / vector
    command = [sys.executable, "-m", "dpserve_verify", str(place / "ledger"), "--trust", str(place / "trust.json")]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (code, b"")
