"""Sample data to try everything with: Adult, public census records, which the project ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAME = "adult"
ROWS, SCHEMA = "adult_train.parquet", "adult.schema.yaml"
PLACES = (Path(__file__).parent / "sample", Path(__file__).resolve().parents[3] / "examples" / "data")  # wheel, sources
ASKED: dict[str, Any] = {
    "name": NAME, "epsilon": "3", "delta": "0.000001", "unit": "record", "holdout": "0.2", "relation": "add-remove",
}  # fmt: skip
WORDS = (
    "Sample data, to try everything with: Adult, the public 1994 census records of 32,561 people, which dpserve ships."
)


def sample_folder() -> Path | None:
    """Return the folder of the sample's rows and schema; None where it is not installed."""
    return next((place for place in PLACES if (place / ROWS).is_file() and (place / SCHEMA).is_file()), None)
