"""The page of learners of others: asked for, checked beside the server, admitted, chosen in a job's form, removed."""

from __future__ import annotations

import time

import ledgers
import pytest
from pages_in_process import pages_at, words
from small_home import write_files

from accountant.home import Home
from accountant.ledger import learner_admissions
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register

AT = "/ui/learners"
TEXT = (ledgers.ROOT / "examples" / "naive_bayes.py").read_text()
TYPED = {
    "name": "bayes", "text": TEXT.replace("\n", "\r\n"), "kind": "NaiveBayes", "author": "Ana",
    "reason": "two of us read it", "neighbours": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learners")
    files, home = write_files(folder / "files"), Home.init({"DPSERVE_HOME": str(folder / "home")})
    total = Budget.of("3", "0.000001")
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", total, Relation.ADD_REMOVE, None)
    with pages_at(folder / "home") as pages:
        yield pages


def checked(site) -> str:
    while "is checked" in (text := words(site.page(AT))):
        time.sleep(0.1)
    return text


@pytest.mark.slow
def test_a_text_becomes_a_choice_of_the_job_s_form_and_is_removed(site):
    assert "None is admitted" in words(site.page(AT))
    for changes, status in (({"text": ""}, 400), ({"neighbours": "x"}, 400), ({"only": "on"}, 400)):
        assert site.send(AT, **TYPED | changes).status_code == status
    sent = site.send(AT, **TYPED)
    assert (sent.status_code, sent.headers["location"]) == (303, "/ui/learners#checks")
    assert site.send(AT, **TYPED).status_code == 409
    assert "every dataset" in checked(site)
    (entry,) = learner_admissions.admissions(site.home.ledger)
    assert (entry.value["author"], entry.value["by"], entry.value["neighbours"]) == ("Ana", "token:the-admin", 1)
    shown = site.page(f"{AT}/bayes")
    assert "two of us read it" in words(shown)
    assert "histogram" in shown.text
    form = site.page("/ui/jobs/new?dataset=adult&learner=of+others%3A+bayes&epsilon=0.2")
    assert "by Ana; admitted by token:the-admin" in words(form)
    assert "--learner outside --epsilon 0.2 --set code=bayes" in words(site.page(
        "/ui/jobs/price?dataset=adult&learner=of+others%3A+bayes&epsilon=0.2"
    ))  # fmt: skip
    assert site.send(f"{AT}/bayes/remove", reason="").status_code == 400
    assert site.send(f"{AT}/bayes/remove", reason="mended").headers["location"] == AT
    assert learner_admissions.admissions(site.home.ledger) == []
    assert "of others: bayes" not in words(site.page("/ui/jobs/new?dataset=adult"))


def test_what_its_check_refuses_is_said_until_it_is_forgotten(site):
    site.send(AT, **TYPED | {"name": "broken", "text": "class NaiveBayes:\n    pass\n"})
    assert "refused" in checked(site)
    site.send(f"{AT}/broken/forget")
    assert "broken" not in words(site.page(AT))
