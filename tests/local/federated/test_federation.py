"""Three institutions answer a campaign over NVFlare's own programs, with mutual TLS and no network but loopback; and
refuse what they must, though the server lets everything in. `make federated-test`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import loopback
import pytest

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.server]
HELPER = Path(__file__).resolve().parents[2] / "helpers" / "federation.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    python = os.environ.get("FEDERATED_PYTHON")
    assert python, "FEDERATED_PYTHON: a python that has nvflare; make federated-test makes one"
    folder = tmp_path_factory.mktemp("federation")
    run = subprocess.run([*loopback.command(), python, str(HELPER), str(folder)], capture_output=True, text=True,
                         timeout=280, check=False)  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads((folder / "found.json").read_text())


def test_three_institutions_answer_and_a_model_is_issued(found):
    assert found["survey"][0] == "FINISHED:COMPLETED"
    assert found["listed"]
    assert found["reports"] == 3
    assert found["closed"] == "issued"


def test_nobody_speaks_without_a_certificate_of_the_federation(found):
    assert found["member"]
    assert not found["stranger"]


def test_code_in_a_job_is_refused_by_every_institution_and_never_runs(found):
    status, *said = found["code"]
    assert status == "FINISHED:FAILED_TO_RUN"
    assert "server: OK" in said
    assert sum("BYOC not permitted" in each for each in said) == 3
    assert not found["ran"]


def test_a_class_that_is_installed_but_not_allowed_answers_nothing(found):
    assert found["other"][0] != "FINISHED:COMPLETED"


def test_each_institution_charges_its_own_ledger_once(found):
    """The same job again sends the same bytes; who has nothing left does not answer the next campaign."""
    assert found["survey again"][0] == "FINISHED:COMPLETED"
    assert found["same bytes"]
    assert found["lines"] == {"north": ["survey", "again"], "south": ["survey", "again"], "west": ["survey"]}
    assert found["again reports"] == 2
    assert found["sent"]
