"""What one training costs does not grow with the models that lie in the home."""

from __future__ import annotations

import os
from collections import Counter

import ledgers
import pytest

from accountant.home import Home
from training.jobs import job
from training.requests import JobRequest

ASKED = JobRequest("adult", "lazybb", "0.05", parameters={"rounds": 2}, model="new")


def looks_of_a_training(folder, models: int, monkeypatch) -> Counter[str]:
    """Looks at folders and files while one is trained beside so many models of other names."""
    home = Home.open(ledgers.place(ledgers.copy(ledgers.trained(), folder)))
    for number in range(models):
        ledgers.copy(home.models / "adult", home.models / f"old-{number}")
    looks: Counter[str] = Counter()

    def counted(name, look):
        def at(*arguments, **options):
            looks[name] += 1
            return look(*arguments, **options)

        return at

    with monkeypatch.context() as patch:
        for name in ("scandir", "listdir", "stat", "lstat"):
            patch.setattr(os, name, counted(name, getattr(os, name)))
        job.train(home, ASKED, by="test")
    home.ledger.log.database.close()
    return looks


@pytest.mark.slow
def test_storing_a_model_looks_at_its_own_name_alone(tmp_path, monkeypatch):
    looks_of_a_training(tmp_path / "first", 1, monkeypatch)  # what a process loads once
    few, many = (looks_of_a_training(tmp_path / str(count), count, monkeypatch) for count in (10, 200))
    assert few == many
    assert few["stat"] + few["scandir"] + few["listdir"] > 3
