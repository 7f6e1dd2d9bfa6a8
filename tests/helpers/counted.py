"""A home whose rows are counted: Adult, a part kept aside, and other people's rows with two targets under
replace-one.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import ledgers
import pyarrow.parquet as pq

from accountant.home import Home
from accountant.ledger.families.left import describe_budget
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register

SCHEMA = """
targets: {income: {classes: ["<=50K", ">50K"]}, hours_per_week: {range: [0, 100]}}
records: 4000
features: {age: {type: numeric, %s}, sex: {type: categorical, values: [Male, Female]}}
ignore: [%s]
"""


def make_home(folder: Path, size: int, epsilon: str, holdout: str, age: str) -> Path:
    """Return the path of a home. `size`: rows of `adult`; `holdout`: their share that is kept aside; `age`: how the
    schema of `two` has it.
    """
    home = Home.init(ledgers.place(folder / "home"))
    rows = pq.read_table(ledgers.EXAMPLES / "adult_train.parquet")
    others = sorted({*rows.column_names} - {"income", "hours_per_week", "age", "sex"})
    of_adult = (ledgers.EXAMPLES / "adult.schema.yaml").read_text().replace("records: 32561", f"records: {size}")
    for name, part, text, relation, share in (
        ("adult", rows.slice(0, size), of_adult, Relation.ADD_REMOVE, Decimal(holdout)),
        ("two", rows.slice(8000, 4000), SCHEMA % (age, ", ".join(others)), Relation.REPLACE_ONE, None),
    ):
        files = folder / f"{name}.parquet", folder / f"{name}.yaml"
        pq.write_table(part, files[0])
        files[1].write_text(text)
        register(home, name, *files, Budget.of(epsilon, "0.00001"), relation, "record", holdout=share)
    home.ledger.log.database.close()
    return home.path


def spent(home: Home, dataset: str = "adult", part: str | None = None) -> str:
    """Return the epsilon that is spent of a dataset."""
    return str(describe_budget(home.ledger.dataset(dataset, part=part))["spent"]["epsilon"])
