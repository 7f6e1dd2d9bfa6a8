"""What a registration leaves behind where something beside it fails."""

from __future__ import annotations

from small_home import write_files

from accountant.home import Home
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register


def test_what_is_registered_stays_so_where_it_cannot_be_noted(tmp_path, caplog):
    """The note is for people, and comes after the entry: asked again, the name would be taken."""
    home, files = Home.init({"DPSERVE_HOME": str(tmp_path / "home")}), write_files(tmp_path / "files")
    (home.path / "datasets.json").mkdir()  # as a full disk refuses it
    total = Budget.of(1, "1e-6")
    about = register(home, "adult", files / "rows.parquet", files / "schema.yaml", total, Relation.ADD_REMOVE, None)
    assert home.ledger.datasets() == [about]
    assert "adult is registered, and cannot be noted there" in caplog.text
