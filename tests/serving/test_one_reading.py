"""One file, one reading: each kind of file that people bring to a model, at each door where they bring it, gives what
`dpserve predict` gives of it, or is refused as there, by the column's name.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import kinds_of_files
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import warm
from browser import chromium, new_page, predict_file, sign_in
from in_process import Site
from kinds_of_files import DATASETS, ROWS
from pyarrow import ipc
from small_home import Server, serving

from accountant.home import Home
from dpserve import Client
from dpserve.errors import BadInput
from dpserve_verify.errors import DpserveError
from models.features.table_format import TableFormat, format_from_json, format_from_text
from models.features.written import Form, Written
from models.store.loading import VerifiedModel, load_verified
from serving.cli.app import run
from serving.rest import models
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import columns_of
from training.rows.tables.frames import frame_table

pytestmark = pytest.mark.server

FILES = [(name, kind) for name, told in DATASETS.items() for kind in told.files]
BYTES = "application/octet-stream"
STREAM, PARQUET, NPY = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet", "application/x-npy"
Lines = list[list[str]]


class Refused(Exception):
    """What a door says in place of an answer."""


@dataclass
class World:
    """A home with a model of each dataset, its server, and what the command line says of each file."""

    folder: Path
    home: Path
    server: Server
    paths: dict[tuple[str, str], Path]
    answers: dict[tuple[str, str], Lines | None]
    models: dict[str, VerifiedModel]
    site: Site
    secret: str
    client: Client


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("kinds")
    paths = kinds_of_files.write_all(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(folder / "home"))
        assert run(["init"]) == 0
        for name, told in DATASETS.items():
            data, schema = str(paths[name, next(iter(told.files))]), str(folder / f"{name}.yaml")
            asked = ["--data", data, "--schema", schema, "--epsilon", "20", "--delta", "1e-6", "--unit", "record"]
            why = ["--holdout", "none", "--new-people", "--reason", "made up"]
            assert run(["dataset", "register", name, *asked, *why]) == 0
            learner = ["--learner", "ebm"] if "range" in told.target else ["--learner", "lazybb", "--set", "rounds=5"]
            assert run(["train", name, *learner, "--epsilon", "8"]) == 0
        answers = {at: predicted(path, at[0], folder / "out.csv") for at, path in paths.items()}
        home = Home.open()
        found = {name: load_verified(home.models / name / "1", home.trust) for name in DATASETS}
        warm.read_files_by_forks(patch)
        with serving(folder / "home", workers=1) as server:
            site = Site(home, models.DOORS)
            client = Client(f"http://127.0.0.1:{server.port}", server.tokens["predict"])
            secret = site.token("file", "predict")
            yield World(folder, folder / "home", server, paths, answers, found, site, secret, client)


def predicted(path: Path, name: str, out: Path) -> Lines | None:
    """What `dpserve predict` writes; None where it refuses the file."""
    code = run(["predict", name, "--data", str(path), "--out", str(out)])
    assert code in (0, 2)
    return None if code else labels_in(out.read_text("utf-8"))


def labels_in(text: str) -> Lines:
    """The cells of each line of predictions: the label, and the chances or the value with every digit."""
    return [[plain(cell) for cell in line] for line in csv.reader(io.StringIO(text, newline=""))][1:]


def plain(cell: str) -> str:
    """A cell as it stands, a number spelled in one way: 5000 and 5000.0 are the same."""
    with contextlib.suppress(ValueError):
        return repr(float(cell))
    return cell


def labels_of(answer: Any) -> Lines:
    if answer.status_code != 200:
        assert answer.status_code in (400, 422), answer.text
        raise Refused(answer.text)
    return labels_in(answer.text)


def features_of(world: World, name: str) -> list[str]:
    return [feature.name for feature in world.models[name].ensemble.features]


def table_of(world: World, name: str, kind: str) -> pa.Table:
    """The cells of a file as a typed table of the model's columns: of text files texts, as a client has them."""
    file = DATASETS[name].files[kind]
    texts = file.ending in (".csv", ".csv.gz", ".tsv", ".txt", ".data")
    columns = {}
    for feature in features_of(world, name):
        cells = file.columns[feature]
        several = len({type(cell) for cell in cells if cell is not None}) > 1
        columns[feature] = pa.array(
            [None if cell is None else str(cell) for cell in cells] if texts or several else cells
        )
    return pa.table(columns)


def bytes_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def records_of(table: pa.Table) -> list[dict[str, Any]]:
    def plain(cell: Any) -> Any:
        if isinstance(cell, Decimal):
            return float(cell)
        return cell.isoformat() if isinstance(cell, date | datetime | time) else cell

    return [{name: plain(cell) for name, cell in record.items()} for record in table.to_pylist()]


# ---- the doors; each returns the lines of predictions


def sent(world: World, name: str, body: bytes, media: str, **query: str) -> Lines:
    """Asked in this process, where a fork of a warm one reads the file; what the page and a client send below is read
    by the program that a server starts.
    """
    headers, asked = {"Content-Type": media, "Accept": "text/csv"}, urlencode({"model": name, **query})
    return labels_of(world.site.bear(world.secret, "POST", f"/predict?{asked}", content=body, headers=headers))


def by_file(world: World, name: str, kind: str) -> Lines:
    """As the page sends a file: its bytes and its name."""
    path = world.paths[name, kind]
    return sent(world, name, path.read_bytes(), BYTES, file=path.name)


def by_body(world: World, name: str, kind: str) -> Lines:
    """As its own media type, where it has one; CSV with a column that is kept: a body has no others than the model's
    else.
    """
    path, ending = world.paths[name, kind], DATASETS[name].files[kind].ending
    if ending == ".parquet":
        return sent(world, name, path.read_bytes(), PARQUET)
    if ending not in (".csv", ".tsv", ".txt", ".data"):
        return by_file(world, name, kind)
    return [cells for _, *cells in sent(world, name, path.read_bytes(), "text/csv", keep="y")]


def by_client(world: World, name: str, body: bytes, media: str) -> Lines:
    return labels_in(world.client.predict_table(name, body, media, "text/csv").decode())


def by_arrow(world: World, name: str, kind: str) -> Lines:
    return by_client(world, name, bytes_of(table_of(world, name, kind)), STREAM)


def parquet_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def by_parquet(world: World, name: str, kind: str) -> Lines:
    return sent(world, name, parquet_of(table_of(world, name, kind)), PARQUET)


def by_npy(world: World, name: str, kind: str) -> Lines:
    table = table_of(world, name, kind)
    columns = {column: array_of(table[column].to_pylist()) for column in table.column_names}
    array = np.empty(ROWS, [(column, cells.dtype) for column, cells in columns.items()])
    for column, cells in columns.items():
        array[column] = cells
    sink = io.BytesIO()
    np.save(sink, array)
    return by_client(world, name, sink.getvalue(), NPY)


def array_of(cells: list[Any]) -> Any:
    """As NumPy has such cells: days as datetime64, times of day as texts."""
    first = next(cell for cell in cells if cell is not None)
    if isinstance(first, date):
        return np.array(cells, "M8[us]" if isinstance(first, datetime) else "M8[D]")
    if isinstance(first, Decimal | float | int):
        return np.array(cells, None if isinstance(first, bool) else float)
    return np.array(["" if cell is None else str(cell) for cell in cells])


def by_json(world: World, name: str, kind: str) -> Lines:
    body = {"model": name, "records": records_of(table_of(world, name, kind))}
    return labels_of(world.server.post("/predict", body, scope="predict", headers={"Accept": "text/csv"}))


def by_explain(world: World, name: str, kind: str) -> Lines | None:
    body = {"model": name, "records": records_of(table_of(world, name, kind))}
    answer = world.server.post("/explain", body, scope="predict")
    if answer.status_code != 200:
        raise Refused(answer.text)
    return only_labels(answer.json()["predictions"])


def only_labels(labels: list[Any]) -> Lines:
    return [[plain(str(label))] for label in labels]


def by_v2(world: World, name: str, kind: str, binary: bool = False) -> Lines:
    inputs, raw = [], b""
    records = records_of(table_of(world, name, kind))
    for column in records[0]:
        cells = [record[column] for record in records]
        first = next(cell for cell in cells if cell is not None)
        datatype = {bool: "BOOL", int: "INT64", float: "FP64"}.get(type(first), "BYTES")
        tensor = {"name": column, "datatype": datatype, "shape": [len(cells)]}
        if binary:
            part = binary_of(datatype, cells)
            inputs.append({**tensor, "parameters": {"binary_data_size": len(part)}})
            raw += part
        else:
            inputs.append({**tensor, "data": cells})
    head = json.dumps({"inputs": inputs}).encode()
    headers = {"Content-Type": BYTES, "Inference-Header-Content-Length": str(len(head))} if binary else {}
    headers = headers or {"Content-Type": "application/json"}
    answer = world.server.ask("POST", f"/v2/models/{name}/infer", scope="predict", content=head + raw, headers=headers)
    if answer.status_code != 200:
        raise Refused(answer.text)
    return only_labels(answer.json()["outputs"][0]["data"])


def binary_of(datatype: str, cells: list[Any]) -> bytes:
    if datatype == "BYTES":
        texts = [("" if cell is None else cell).encode() for cell in cells]
        return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    return np.array(cells, {"BOOL": "?", "INT64": "<i8", "FP64": "<f8"}[datatype]).tobytes()


def by_v2_binary(world: World, name: str, kind: str) -> Lines:
    return by_v2(world, name, kind, binary=True)


def by_remote_command(world: World, name: str, kind: str) -> Lines:
    """The command line at a server: the file is read here, by the format that the model brings along."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DPSERVE_HOME", raising=False)
        patch.setenv("DPSERVE_URL", f"http://127.0.0.1:{world.server.port}")
        patch.setenv("DPSERVE_TOKEN", world.server.tokens["predict"])
        found = predicted(world.paths[name, kind], name, world.folder / "remote.csv")
    if found is None:
        raise Refused(DATASETS[name].files[kind].refused)
    return found


def by_frame(world: World, name: str, kind: str) -> Lines:
    """A notebook's frame under the schema, as `predict` of a fitted learner reads it."""
    schema = parse_schema(DATASETS[name].schema.encode())
    columns = columns_of(schema, frame_table(table_of(world, name, kind)))
    return only_labels(world.models[name].ensemble.predict(columns).tolist())


DOORS = {
    "a file": by_file, "a body": by_body, "Arrow": by_arrow, "Parquet": by_parquet, "NumPy": by_npy, "JSON": by_json,
    "explain": by_explain, "V2": by_v2, "V2 in bytes": by_v2_binary, "remote command": by_remote_command,
    "notebook": by_frame,
}  # fmt: skip
LABELS_ALONE = ("explain", "V2", "V2 in bytes", "notebook")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("name", "kind"), FILES, ids=[f"{name}-{kind}" for name, kind in FILES])
def test_a_file_is_read_at_every_door_as_the_command_line_reads_it(world, name, kind, door):
    wanted, column = world.answers[name, kind], DATASETS[name].files[kind].refused
    assert (wanted is None) == (column is not None)
    if wanted is None:
        with pytest.raises((Refused, BadInput, DpserveError), match=rf"\b{column}\b"):
            DOORS[door](world, name, kind)
        return
    found = DOORS[door](world, name, kind)
    assert found == ([line[:1] for line in wanted] if door in LABELS_ALONE else wanted)


def test_a_client_sends_parquet_to_the_server(world):
    for name, kind in (("mix", "csv"), ("missing", "parquet")):
        body = parquet_of(table_of(world, name, kind))
        assert by_client(world, name, body, PARQUET) == world.answers[name, kind]


def test_the_page_sends_a_file_and_reads_nothing_of_it(world):
    """A comma in one column beside points in another, thousands with blanks, numbers that stand for nothing."""
    with chromium() as browser:
        page = sign_in(new_page(browser, world.server, accept_downloads=True), world.server)
        for name, kind in (("mix", "csv"), ("french", "csv"), ("missing", "parquet")):
            page.goto(f"/ui/models/{name}")
            page.get_by_text("Predict a file").click()
            assert labels_in(predict_file(page, world.paths[name, kind])[0]) == world.answers[name, kind]
        page.goto("/ui/models/mix")
        page.get_by_text("Predict a file").click()
        assert "s: row 2, 3" in predict_file(page, world.paths["mix", "points"])[1]
        page.get_by_text("It is written otherwise").click()
        page.get_by_label("All numbers are written").select_option(label="1234.5")
        assert labels_in(predict_file(page, world.paths["mix", "points"])[0]) == world.answers["mix", "csv"]


def test_a_format_goes_through_a_certificate_as_it_is():
    """Each way of writing once, nothing of what is usual, and nothing that nobody reads."""
    names = [f"c{at}" for at in range(1000)]
    written = Written(decimal=",", missing=("k.A.",), missing_numbers=(9999.0, -1.5))
    told = TableFormat(Form(";", "cp1252"), dict.fromkeys(names, written) | {"d": Written(dates=("DD.MM.YYYY",))})
    text = told.to_text([*names, "d"])
    assert text is not None
    assert text.count("k.A.") == 1
    assert format_from_text(text) == told
    assert format_from_json(told.to_json(["d"])) == TableFormat(told.form, {"d": told.columns["d"]})
    assert (TableFormat().to_text(names), TableFormat().to_json(names)) == ("", None)
    assert (
        TableFormat(columns={"c" * 200 + str(at): written for at in range(1000)}).to_text(
            ["c" * 200 + str(at) for at in range(1000)]
        )
        is None
    )
    for wrong in ({"forms": {}}, {"form": {"mark": ";"}}, {"columns": {"c1": {"decimals": ","}}}, [], "x"):
        with pytest.raises(DpserveError, match="format: "):
            format_from_json(wrong)


def test_the_certificate_alone_says_how_a_file_is_read(world, tmp_path, monkeypatch):
    """Without the dataset's schema, as where a bundle was brought: the home has none of its rows any more."""
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    shutil.copytree(world.home, tmp_path / "home", ignore=shutil.ignore_patterns("run"))
    for schema in (tmp_path / "home" / "datasets").glob("*/schema.yaml"):
        schema.unlink()
    for name, kind in (("mix", "csv"), ("missing", "parquet"), ("days", "csv")):
        assert predicted(world.paths[name, kind], name, tmp_path / "out.csv") == world.answers[name, kind]
    assert world.models["usual"].certificate.statement["predicate"]["dataset"].keys() & {"format"} == set()
