"""The vectors of `tests/vectors` before our own audit and verifier. jq has them in tests/docs/test_walk_through.py, the
browser in tests/serving/pages/test_ui_verify.py, Go in tests/accountant/log/test_foreign_go.py, sigstore's npm verifier
in tests/accountant/certificates/test_foreign_sigstore.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import vectors
from expected_verdicts import EXPECTED, FOLDER, concerning, trust_of

from dpserve_verify.audit.exports import audit_export
from dpserve_verify.certificates.certificate import recompute, verify
from dpserve_verify.certificates.predicate import ClaimForm, MechanismForm
from dpserve_verify.entries.kinds import FORMS
from dpserve_verify.errors import CertificateInvalid, DpserveError

MOST = 2_000_000  # bytes of all vectors
REFUSALS = {  # of claims, by the layer that they are forged in
    "epsilon": "does not follow",
    "curve": "does not follow",
    "pairs": "is not its price|must stand its line",
}
NOT_IN_STORIES: set[str] = set()  # kinds of entries that no ledger of the vectors has


@pytest.mark.parametrize(
    "name", [name for name in concerning("ledger", "budgets") if "budgets" in EXPECTED[name].get("by", ())]
)
def test_a_forged_budget_is_found_by_its_sums(name):
    """A forgery that is refused for its form would say nothing of what the audit adds up."""
    problem = audit_export(FOLDER / name / "ledger", trust_of(name)).problems[0]
    assert not re.search("must have exactly the fields|must be the digest", problem), problem


@pytest.mark.parametrize("name", concerning("ledger", "log"))
def test_the_audit_judges_ledgers(name):
    """The first entry that is wrong, or not known, is the one that the vector names."""
    report = audit_export(FOLDER / name / "ledger", trust_of(name))
    assert report.ok == (EXPECTED[name]["verdict"] == "sound"), report.problems
    if "entry" in EXPECTED[name]:
        found = report.newer if name == "unknown-kind" else report.first
        assert found == EXPECTED[name]["entry"], report.problems


@pytest.mark.parametrize("name", concerning("claim", "epsilon"))
def test_claims_are_recomputed(name):
    predicate = json.loads((FOLDER / name / "statement.json").read_text())["predicate"]
    claim = ClaimForm.read(predicate["claim"])
    mechanisms = [MechanismForm.read(run) for run in predicate["mechanisms"]]
    if EXPECTED[name]["verdict"] == "sound":
        recompute(claim, mechanisms)
    else:
        refusals = [REFUSALS[layer] for layer in EXPECTED[name]["by"]]
        with pytest.raises(CertificateInvalid, match="|".join(refusals)):
            recompute(claim, mechanisms)


@pytest.mark.parametrize("name", concerning("bundle", "signature"))
def test_bundles_are_verified(name):
    model = FOLDER / name / "model.onnx"
    envelope, proof = (model.with_name(f"model.onnx.{end}").read_bytes() for end in ("dsse.json", "tlog-proof"))
    if EXPECTED[name]["verdict"] == "sound":
        verify(envelope, proof.decode(), model.read_bytes(), trust_of(name))
    else:
        with pytest.raises(DpserveError):
            verify(envelope, proof.decode(), model.read_bytes(), trust_of(name))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("blocks", 0), ("tuned", 0), ("tuned-price-halved", 4), ("overspent", 4)])
def test_the_command_line_comes_to_the_same_verdict(name, code, tmp_path):
    words = ["ledger", "audit", str(FOLDER / name / "ledger"), "--trust", str(FOLDER / name / "trust.json")]
    command = [str(Path(sys.executable).with_name("dpserve")), *words]
    done = subprocess.run(command, capture_output=True, text=True, env={"DPSERVE_HOME": str(tmp_path / "none")})
    assert done.returncode == code, done.stdout + done.stderr


def test_every_kind_of_entry_stands_in_a_sound_ledger():
    found = set()
    for name, each in EXPECTED.items():
        if each["kind"] == "ledger" and each["verdict"] == "sound":
            lines = (FOLDER / name / "ledger" / "entries.jsonl").read_text().splitlines()
            found |= {json.loads(line)["type"] for line in lines}
    assert set(FORMS) - found == NOT_IN_STORIES


def test_every_layer_is_forged_by_itself():
    """So that a verifier which looks at one of them less is found out."""
    alone = {each["by"][0] for each in EXPECTED.values() if len(each["by"]) == 1}
    assert alone == set(vectors.LAYERS)
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < MOST


@pytest.mark.slow
def test_the_folder_is_what_the_command_writes(tmp_path, monkeypatch):
    """The same bytes, but for versions of libraries: change what is written, and the folder with it."""
    monkeypatch.setattr(vectors, "FOLDER", tmp_path / "vectors")
    vectors.write()
    made = sorted(path.relative_to(tmp_path / "vectors") for path in (tmp_path / "vectors").rglob("*"))
    assert made == sorted(path.relative_to(FOLDER) for path in FOLDER.rglob("*"))
    for path in made:
        if path.name in ("expected.json", "entries.jsonl", "checkpoint"):
            assert (tmp_path / "vectors" / path).read_bytes() == (FOLDER / path).read_bytes(), path
