"""The commands of docs/delete-a-person.md and docs/budget-year.md, as they stand; and the figures of the latter."""

from __future__ import annotations

import json
import re
import shlex
from decimal import Decimal

import pytest
import warm
from pages import ROOT, blocks, follow, part
from small_home import dpserve

from accountant.home import Home
from dpserve_verify.privacy.budget import Budget
from training.planning.plans import public_of
from training.planning.price_engine import ENGINE, references, without_labels
from training.rows.schema.schema import schema_of

SCHEMA = """target: {name: again, classes: ["no", "yes"]}
records: 400
features:
  age: {type: numeric, range: [0, 100], bins: 8}
"""
REGISTER = "register visits --data visits.csv --schema visits.yaml --epsilon 3 --delta 1e-6 --unit patient"


@pytest.mark.slow
def test_a_person_is_deleted_and_a_year_is_planned_by_the_commands_of_the_pages(tmp_path):
    (tmp_path / "visits.yaml").write_text(SCHEMA)
    rows = [f"p{row // 3},{row % 90},{'yes' if row % 3 else 'no'}" for row in range(400)]
    (tmp_path / "visits.csv").write_text("\n".join(["patient,age,again", *rows, ""]))
    home, program = tmp_path / "home", f'dpserve() {{ {shlex.join(warm.python())} -m serving.cli "$@"; }}'
    train = "train visits --learner lazybb --epsilon 0.3 --model visits"
    first = "\n".join([program, *(f"dpserve {words}" for words in ("init", f"dataset {REGISTER}", train)), ""])
    year, steps = blocks("docs/budget-year.md", "sh"), blocks("docs/delete-a-person.md", "sh")
    shown = follow(tmp_path, first + "".join(year) + "".join(steps))
    assert "still fit" in shown
    held = {path.parent.name for path in (home / "datasets").rglob("cells-of-octaves.npy")}
    new = json.loads(dpserve(home, "dataset", "show", "visits-2", "--json").stdout)
    assert len(held) == 1
    assert new["budget"]["spent"]["pure"] != "0"
    listed = json.loads(dpserve(home, "model", "list", "--json").stdout)
    assert {each["model"] for each in listed["models"] if each.get("champion")} == {"visits@2"}
    assert dpserve(home, "ledger", "audit").returncode == 0


@pytest.mark.slow
def test_as_many_jobs_fit_into_a_total_as_the_page_says(tmp_path, monkeypatch):
    """Prices of ebm's and lazybb's jobs on a table of the census' width; the page gives the smaller figure."""
    page = part("docs/budget-year.md", "How many jobs fit")
    sizes = [Decimal(size) for size in re.findall(r"(?:jobs )?of ([\d.]+) ?\|", page)]
    table = [[int(cell) for cell in line.split("|")[1:-1]] for line in re.findall(r"^\| \d.*\|$", page, re.M)]
    data = ROOT / "examples/data"
    words = ["--data", str(data / "adult_train.parquet"), "--schema", str(data / "adult.schema.yaml")]
    for total, *counts in table:
        place = tmp_path / f"total-{total}"
        assert dpserve(place, "init").returncode == 0
        done = dpserve(place, "dataset", "register", "adult", *words, "--epsilon", str(total), "--delta", "1e-6")
        assert done.returncode == 0, done.stderr
        monkeypatch.setenv("DPSERVE_HOME", str(place))
        home = Home.open()
        dataset = home.ledger.dataset("adult")
        schema = schema_of(home, dataset)
        for size, count in zip(sizes, counts, strict=True):
            public = public_of(dataset, schema.question(schema.target_names[0]), Budget(size, dataset.delta))
            recipes = ENGINE.price(references, *without_labels(public))
            jobs = [
                dataset.jobs_left(dataset.costs(recipes[each].plan), recipes[each].claim) for each in ("ebm", "lazybb")
            ]
            assert min(jobs) == count, (total, size)
