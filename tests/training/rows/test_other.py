"""A category that is written otherwise than in the schema is refused before anything is registered, with the reason."""

from __future__ import annotations

import unicodedata
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accountant.errors import DataError
from dpserve_verify.privacy.budget import Relation
from training.datasets.file_check import check_file
from training.datasets.packing import check_packed, pack
from training.rows.schema.schema import parse_schema
from training.rows.tables.file_check import explaining

PLACES = ("Ulm", "Köln", "St. Gallen")
SCHEMA = """target: {{name: y, classes: [no, yes]}}
records: 100
features:
  c: {{type: categorical, values: [{}]{}}}
"""
OTHERWISE = {
    "blank before": (PLACES, lambda text: " " + text, "blanks about them"),
    "no-break space after": (PLACES, lambda text: text + "\u00a0", "blanks about them"),
    "put together otherwise": (("Köln", "Würzburg"), lambda text: unicodedata.normalize("NFD", text), "NFC"),
    "capitals": (PLACES, str.upper, "other capitals"),
    "quotes": (PLACES, lambda text: f"'{text}'", "quotes about them"),
    "a dot": (PLACES, lambda text: text + ".", "a dot after them"),
    "floats of codes": (("1", "2"), lambda text: text + ".0", "`.0` after them"),
    "zeros": (('"010"', '"020"'), lambda text: text.strip('"').lstrip("0"), "other zeros before them"),
    "all at once": (
        PLACES,
        lambda text: f' "{text.upper()}."',
        "blanks, capitals, zeros, quotes, dashes, a dot or an encoding of their own",
    ),
    "other words": (PLACES, lambda text: "x" + text, "other: expected"),
}


def asked(listed, more=""):
    return parse_schema(SCHEMA.format(", ".join(listed), more).encode())


def answers(path, schema):
    """What the check says, and what the registration does."""
    try:
        check_packed(schema, path, pack(path, schema), Relation.ADD_REMOVE)
    except DataError as error:
        return check_file(schema, path).problems, error
    return check_file(schema, path).problems, None


def write(path, cells):
    table = pa.table({"c": cells, "y": ["no", "yes"] * (len(cells) // 2)})
    pq.write_table(table, path)


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_is_written_otherwise_is_told_and_how(tmp_path, name):
    listed, change, how = OTHERWISE[name]
    cells = [change(text) for text in listed] * 20
    write(tmp_path / "rows.parquet", cells)
    [problem], refused = answers(tmp_path / "rows.parquet", asked(listed))
    assert how in f"{problem.found}; {problem.remedy}"
    assert refused.message == str(problem)
    assert name == "zeros" or not any(cell.strip() in f"{problem} {refused.message}" for cell in cells)
    assert answers(tmp_path / "rows.parquet", asked(listed, ", other: expected")) == ([], None)
    as_written = [f'"{text}"' if '"' not in text else f"'{text}'" for text in dict.fromkeys(cells)]
    if name != "put together otherwise":
        assert answers(tmp_path / "rows.parquet", asked(as_written)) == ([], None)  # as the remedy says


def test_half_of_the_rows_is_enough_and_missing_ones_do_not_count(tmp_path):
    write(tmp_path / "rows.parquet", ["Ulm"] * 20 + ["Paris"] * 20 + [None] * 60)
    assert answers(tmp_path / "rows.parquet", asked(PLACES)) == ([], None)
    write(tmp_path / "rows.parquet", ["Ulm"] * 20 + ["Paris"] * 22 + [None] * 58)
    [problem], refused = answers(tmp_path / "rows.parquet", asked(PLACES))
    assert refused is not None
    assert problem.found.startswith("52%")


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.decimal128(6, 2)])
def test_numbers_are_read_by_the_check_as_by_the_registration(tmp_path, kind):
    write(tmp_path / "rows.parquet", pa.array([Decimal(1), Decimal(20)] * 20).cast(kind))
    assert answers(tmp_path / "rows.parquet", asked(("1", '"020"'))) == ([], None)
    [problem], refused = answers(tmp_path / "rows.parquet", asked(PLACES))
    assert "no listed value is a number" in problem.found
    assert "no listed value is a number" in refused.message


def test_a_refusal_for_another_reason_is_not_explained_by_shares(tmp_path):
    write(tmp_path / "rows.parquet", ["Paris"] * 20)
    with pytest.raises(DataError) as refused, explaining(asked(PLACES), tmp_path / "rows.parquet"):
        raise DataError("another reason")
    assert refused.value.message == "another reason"
