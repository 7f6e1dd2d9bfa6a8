"""A registration that ends in an error says what stands: the dataset is registered, or is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledgers import place
from small_home import write_files

from accountant.home import Home
from accountant.store import store
from dpserve_verify.errors import LedgerUnavailable
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets import datasets


def register(home: Home, files: Path) -> None:
    total = Budget.of(1, "1e-5")
    datasets.register(home, "adult", files / "rows.parquet", files / "schema.yaml", total, Relation.ADD_REMOVE, None)


@pytest.mark.parametrize(
    ("written", "words"), [(True, "; dataset adult is registered"), (False, "; dataset adult is not registered")]
)
def test_an_answer_that_was_lost(tmp_path, monkeypatch, written, words):
    home, commit = Home.init(place(tmp_path / "home")), store._commit

    def losing(connection) -> None:
        if written:
            commit(connection)
        raise LedgerUnavailable("ledger database: database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "_commit", losing)
        with pytest.raises(LedgerUnavailable, match=f"{words}$"):
            register(home, write_files(tmp_path / "files"))
    assert [each.registration.name for each in home.ledger.datasets()] == ["adult"] * written
