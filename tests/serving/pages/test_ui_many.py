"""Pages of a home with many datasets: what a page asks of the ledger does not grow with them."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from pages_in_process import pages_at
from sqlalchemy import Engine, event

from accountant.home import Home
from benchmarks import made_ledger

ENTRIES, FEW, MANY = 500, 4, 40  # entries of either home, and its datasets
NEW = "new?dataset=rows-0"
ASKED = (
    *("", "/datasets", "/datasets/rows-0", "/datasets/rows-0/charge", "/jobs", "/jobs?dataset=rows-0", f"/jobs/{NEW}"),
    *("/jobs/parameters?dataset=rows-0&learner=lazybb", "/jobs/blocks?dataset=rows-0", "/schedules", "/learners"),
    *(f"/answers/{NEW}", f"/profiles/{NEW}", "/evaluations/new", "/models", "/ledger", "/ledger?kind=issued"),
    *("/ledger?dataset=rows-0", "/audit", "/tokens", "/grants", "/keys", "/service", "/drafts", "/campaigns"),
)


@contextmanager
def counted():
    """A list that each statement of this process is added to."""
    found = []

    def note(_connection, _cursor, statement, *_):
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def asked(folder, datasets):
    """How many statements each page takes, the first time that it is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_ledger, "PLANS", 3)
        patch.setattr(made_ledger, "JOBS_PER_DATASET", ENTRIES // (4 * datasets))
        made_ledger.make(folder, ENTRIES)
    home = Home.open({"DPSERVE_HOME": str(folder)})
    assert datasets <= len(home.ledger.datasets()) <= 2 * datasets
    home.ledger.log.database.close()
    found = {}
    with pages_at(folder) as site:
        for path in ASKED:
            site.look()
            with counted() as statements:
                assert site.page(f"/ui{path}").status_code == 200, path
            found[path] = len(statements)
    return found


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    return [asked(tmp_path_factory.mktemp(f"of-{datasets}") / "home", datasets) for datasets in (FEW, MANY)]


def test_pages_ask_as_much_of_many_datasets_as_of_few(counts):
    few, many = counts
    assert max(few.values()) > 3, "statements are counted"
    assert {path: (few[path], many[path]) for path in few if many[path] > few[path]} == {}
