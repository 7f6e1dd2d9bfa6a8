"""Jobs that begin from a public model: by a file or by a model of the home, certified with its digest, and refused
where it is none.
"""

from __future__ import annotations

import re

import ledgers
import numpy as np
import pyarrow.parquet as pq
import pytest
from small_home import dpserve

from accountant.audit.audit import audit_home
from accountant.errors import UnknownName
from accountant.home import Home
from dpserve_verify.errors import InputError, ModelInvalid
from models.forms.additive import AdditiveEnsemble
from models.store.loading import load_of_home
from training.jobs import job
from training.planning import starts
from training.planning.plans import plan
from training.requests import JobRequest, ScheduleRequest

pytestmark = pytest.mark.home("prepared")
OTHERS = slice(2000, 3500)  # rows of Adult that the home does not have


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    path = tmp_path_factory.mktemp("public") / "public.parquet"
    pq.write_table(pq.read_table(ledgers.EXAMPLES / "adult_train.parquet")[OTHERS], path)
    return path


def loaded(home: Home, name: str, version: int = 1):
    return load_of_home(home, home.models / name / str(version), name)


def test_the_page_s_commands_begin_from_a_file_and_from_a_model_and_what_comes_of_it_is_certified(home, public):
    page = (ledgers.ROOT / "docs" / "public-start.md").read_text()
    from_file, from_model = re.findall(r"^dpserve (train .*?) +#", page, re.M)
    trained = dpserve(home.path, *from_file.replace("public.parquet", str(public)).split())
    assert trained.returncode == 0, trained.stderr
    verified = loaded(home, "adult")
    parameters = verified.certificate.form.public.hyperparameters
    (kept,) = (home.path / starts.FOLDER).iterdir()
    assert parameters["start"] == kept.stem == starts.learn_start(home, "adult", None, public)
    assert "begins from a public model, whose sha256" in verified.certificate.form.preprocessing
    start, ensemble = starts._read(home, kept.stem), verified.ensemble
    assert isinstance(ensemble, AdditiveEnsemble)
    steps = [np.concatenate([np.diff(term) for term in each.terms]) for each in (start, ensemble)]
    assert np.corrcoef(*steps)[0, 1] > 0.9  # what is served is the sum of both, in one graph
    assert dpserve(home.path, "verify", str(home.models / "adult" / "1")).returncode == 0

    again = dpserve(home.path, "plan", *from_model.replace("other@2", "adult@1").split()[1:], "--model", "again")
    assert again.returncode == 0, again.stderr
    assert "ebm on adult" in again.stdout
    assert "from a public score, sha256" in again.stdout
    wrong = dpserve(home.path, "train", "adult", "--epsilon", "0.1", "--public", "nope.csv")
    assert wrong.returncode == 2
    assert [*audit_home(Home.open(ledgers.place(home.path))).problems] == []


def test_what_is_no_start_is_refused_while_nothing_is_spent(home, public, tmp_path):
    size = home.ledger.log.size()
    digest = starts.learn_start(home, "adult", None, public)
    asked = {"dataset": "adult", "epsilon": "0.1", "public": digest}
    planned = plan(home, JobRequest.of(asked))
    assert planned.request.parameters["start"] == digest
    assert planned.request.learner == "ebm"
    assert planned.to_json()["start"] == digest
    for changes, problem in (
        ({"learner": "lazybb"}, "only ebm begins"),
        ({"tuning": {"grid": {"epochs": [5, 6]}}, "learner": "ebm"}, "no private tuning"),
        ({"public": "0" * 64}, "no start of this digest"),
        ({"parameters": {"engine": "convex"}}, "engine: boosting begins"),
        ({"public": "../x"}, "must match"),
    ):
        with pytest.raises(InputError, match=problem):
            plan(home, JobRequest.of(asked | changes))
    with pytest.raises(UnknownName):
        plan(home, JobRequest.of(asked | {"public": "adult@7"}))
    with pytest.raises(InputError, match="is not a field"):
        ScheduleRequest.of(asked | {"name": "weekly"})
    few = tmp_path / "few.parquet"
    pq.write_table(pq.read_table(public).slice(0, 20), few)
    with pytest.raises(InputError, match="20 rows; a start needs 50"):
        starts.learn_start(home, "adult", None, few)
    (home.path / starts.FOLDER / f"{digest}.json").write_bytes(b"{}")
    with pytest.raises(ModelInvalid, match="says something else"):
        plan(home, JobRequest.of(asked))
    assert home.ledger.log.size() == size


def test_a_model_that_is_no_sum_of_two_classes_is_no_start(home):
    job.train(home, JobRequest("adult", "lazybb-tree", "0.5", parameters={"rounds": 4}), by="test")
    with pytest.raises(InputError, match="must be a sum over features of two classes"):
        starts.start_named(home, "adult@1")
