"""For the differential test: every draw, the clock, names and commitments of datasets, none of them from the rows.

Where nothing else of the rows can be read, two servers over neighbouring datasets then say the same, byte for byte.
Installed by a `sitecustomize.py` in every process of the server; and run as a script, it registers two datasets.
"""

from __future__ import annotations

import datetime
import hmac
import itertools
import os
import sys
import types
import uuid
from pathlib import Path

START = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
BREAK = "DPSERVE_TEST_BREAK"  # names a file: where it is, the next draw fails


class Standing(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return START.astimezone(tz)


class Named:
    """A commitment that takes in the schema, which says "target:", and no row."""

    def __init__(self, mac: hmac.HMAC) -> None:
        self._mac = mac

    def update(self, chunk: bytes) -> None:
        if b"target:" in chunk:
            self._mac.update(chunk)

    def copy(self) -> Named:
        return Named(self._mac.copy())

    def hexdigest(self) -> str:
        return self._mac.hexdigest()


def install() -> None:
    import pandas  # which pyarrow loads where it is there, and whose C code dies of a clock of another class

    assert pandas
    datetime.datetime = Standing
    import numpy as np

    from accountant.keys import private_keys
    from accountant.ledger import family_changes
    from accountant.noise import mechanisms

    count = itertools.count()

    def number(values):
        path = Path(os.environ.get(BREAK, "/nowhere"))
        if path.exists():
            path.unlink()
            raise ValueError(f"the values were {np.asarray(values).ravel()[:20].tolist()}")
        return next(count) * 7919

    def selected(self, values, sensitivity):
        return number(values) % len(values)

    def selected_each(self, values, sensitivity):
        return np.array([selected(self, row, sensitivity) for row in values], dtype=np.int64)

    def noised(self, values, sensitivity):
        return (number(values) + np.arange(np.size(values), dtype=np.int64) * 31).reshape(np.shape(values)) % 997 - 400

    for kind in (mechanisms.ExponentialSelection, mechanisms.PermuteAndFlip):
        kind.draw = selected
    for kind in (mechanisms.ExponentialSelections, mechanisms.PermuteAndFlips):
        kind.draw = selected_each
    for kind in (mechanisms.DiscreteLaplace, mechanisms.DiscreteGaussian):
        kind.draw = noised
    mechanisms.draw_runs = lambda distribution: 3
    plain = types.SimpleNamespace(**vars(hmac))
    private_keys.hmac = types.SimpleNamespace(**vars(hmac) | {"new": lambda *key, **how: Named(plain.new(*key, **how))})
    named = itertools.count()
    family_changes.uuid = types.SimpleNamespace(uuid4=lambda: uuid.UUID(int=next(named)))


def register(home: str, files: str) -> None:
    from accountant.home import Home
    from accountant.ledger.families.records import NewPeople
    from dpserve_verify.privacy.budget import Budget, Relation
    from training.datasets.datasets import register

    folder, found = Path(files), Home.open({"DPSERVE_HOME": home})
    new = NewPeople("made rows", "test")
    for name, relation in (("guessed", Relation.ADD_REMOVE), ("counted", Relation.REPLACE_ONE)):
        data, schema = folder / f"{name}.parquet", folder / f"{name}.yaml"
        register(found, name, data, schema, Budget.of(20, "1e-5"), relation, None, new_people=new)


if __name__ == "__main__":
    register(*sys.argv[1:])
