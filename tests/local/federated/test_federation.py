"""Three institutions answer a campaign over NVFlare's own programs, with mutual TLS and no network but loopback; and
refuse what they must, though the server lets everything in. `make federated-test`.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from pathlib import Path

import hospitals
import loopback
import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score
from small_home import DATA

from accountant.audit.audit import audit_home
from accountant.home import Home
from models.store.bundle import ModelStore
from models.store.loading import load_verified

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.server]
LOG = logging.getLogger(__name__)
LEAST = 0.88  # AUROC; on one table .908
HELPER = Path(__file__).resolve().parents[2] / "helpers" / "federation.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    python = os.environ.get("FEDERATED_PYTHON")
    assert python, "FEDERATED_PYTHON: a python that has nvflare; make federated-test makes one"
    folder = tmp_path_factory.mktemp("federation")
    run = subprocess.run([*loopback.command(), python, str(HELPER), str(folder)], capture_output=True, text=True,
                         timeout=400, check=False)  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return {**json.loads((folder / "found.json").read_text()), "folder": folder}


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


def test_the_platform_stops_no_institutions_process(found):
    assert not found["stopped"]


def test_each_institution_charges_its_own_ledger_once(found):
    """The same job again sends the same bytes; who has nothing left does not answer the next campaign."""
    assert found["survey again"][0] == "FINISHED:COMPLETED"
    assert found["same bytes"]
    assert found["lines"] == {"north": ["survey", "again"], "south": ["survey", "again"], "west": ["survey"]}
    assert found["again reports"] == 2
    assert found["sent"]


def test_adult_cut_among_three_institutions_makes_a_good_model_over_nvflare(found):
    """Whole Adult, epsilon 1: each site's own home pays, two aggregators answer, and nobody pools a row."""
    assert found["study"][0] == "FINISHED:COMPLETED"
    assert (found["rounds"]["reports"], found["study closed"]) == (3, "issued")
    home = Home.open({"DPSERVE_HOME": str(found["folder"] / "home")})
    loaded = load_verified(ModelStore(home.models).resolve("study"), home.trust)
    test = pq.read_table(DATA / "adult_test.parquet")
    scores = loaded.ensemble.probabilities(hospitals.columns(test))[:, 1]
    auroc = roc_auc_score(np.asarray(test["income"].to_pylist()) == str(loaded.ensemble.classes[1]), scores)
    rounds = found["rounds"]["rounds"]
    LOG.warning("AUROC of Adult over NVFlare, 3 x 10,853 rows, epsilon 1, %d rounds: %.4f", rounds, auroc)
    assert auroc > LEAST
    assert loaded.certificate.claim["trustModel"].startswith("institutions: ")
    for site in ("north", "south", "west"):
        own = Home.open({"DPSERVE_HOME": str(found["folder"] / f"{site}-home" / "home")})
        (entry,) = hospitals.charged(own)
        assert entry["parameters"]["campaign"] == "study"
        assert audit_home(own).ok
    assert audit_home(home).ok
