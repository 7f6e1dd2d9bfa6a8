"""The README's commands are run as they stand, in one shell, in a fresh home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ledgers import adult_schema
from pages import ROOT, blocks, checkout, follow
from small_home import free_port

README = (ROOT / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.system("curl")
def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    folder, script = checkout(tmp_path), "\n".join(blocks("README.md", "sh")).replace("3000", str(free_port()))
    assert script.count("dpserve ") > 12
    assert "bentoml serve serving.service:DpserveService" in script
    assert '"predictions"' in follow(folder, script)
    assert (folder / "adult.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (folder / "predictions.parquet").stat().st_size > 10_000
    assert (folder / "exported" / "model.onnx").exists()


MAX_WORDS = 12  # of the glossary before the first model, beside that word itself
FIRST_PATH = ("init", "dataset register", "train", "plan", "evaluate", "predict")


def glossary() -> tuple[list[list[str]], list[str]]:
    """The words of docs/glossary.md, each line's with what else it is called; and those that the first hour has not."""
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8").partition("\n## ")[0]
    rows = [row.split(", ") for row in re.findall(r"^\| ([a-z, ]+) \|", page, re.M) if row != "word"]
    (hidden,) = re.findall(r"does without these: (.*?)\.", page, re.S)
    return rows, " ".join(hidden.split()).split(", ")


FIRST_HOUR = ("README", *(f"docs/{name}" for name in ("index", "first-steps", "budgets", "learners", "evaluation")))
TUTORIALS = sorted(f"docs/tutorials/{path.stem}" for path in (ROOT / "docs" / "tutorials").glob("*.md"))


def stands(word: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(word)}s?\b", text, re.I) is not None


@pytest.mark.parametrize("page", [*FIRST_HOUR, *TUTORIALS])
def test_the_glossary_is_linked_where_a_word_of_it_first_stands(page: str) -> None:
    text = re.sub(r"^---\n.*?^---\n|^```.*?^```$", "", (ROOT / f"{page}.md").read_text("utf-8"), flags=re.M | re.S)
    parts = [part.strip() for part in text.split("\n\n") if not re.match(r"\s*(#|\*\*.*\*\*\s*$|!\[)", part)]
    first = next(part for part in parts if any(stands(word, part) for row in glossary()[0] for word in row))
    assert "glossary.md)" in first


@pytest.mark.slow
def test_the_first_path_needs_few_words_and_none_that_is_hidden(tmp_path: Path) -> None:
    """What the README says first, its commands and what they print: words are counted as they are printed."""
    folder, script = checkout(tmp_path), "\n".join(blocks("README.md", "sh")).replace("\\\n", " ")
    lines = [line for line in script.splitlines() if line.startswith(("dpserve ", "bentoml "))]
    path = [next(line for line in lines if line.startswith(f"dpserve {name}")) for name in FIRST_PATH]
    assert [lines.index(line) for line in path] == sorted(lines.index(line) for line in path)
    before, after = path[:3], path[3:]  # the model is there after `train`
    above = README.partition("dpserve train")[0]
    assert [line.split()[0] for line in lines[:4]] == ["dpserve"] * 3 + ["bentoml"]  # served, after `make install`
    shell = 'export PATH="$PWD/.venv/bin:$PATH"\nexec 2>&1\n'
    said = follow(folder, shell + "\n".join([*before, "echo THE MODEL", *after]))
    first, _, then = said.partition("THE MODEL")
    rows, hidden = glossary()
    assert 20 <= len(rows) <= 29

    read = "\n".join([above, *before, first])
    used = [row[0] for row in rows if row != ["model"] and any(stands(word, read) for word in row)]
    assert 8 <= len(used) <= MAX_WORDS, used
    assert [word for word in hidden if stands(word, first + then)] == []
    assert "of the budget used. Room for one more job: up to epsilon" in first
    assert re.search(r"^auroc +0\.\d{2,3}", then, re.M)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.system("curl")
def test_the_minute_of_the_home_page_runs(tmp_path: Path) -> None:
    """docs/index.md, as it stands but for the port, with the census people's files under the names that it has."""
    folder, (block,) = checkout(tmp_path), blocks("docs/index.md", "sh")
    for name, rows in (("adult", "adult_train"), ("test", "adult_test")):
        table = pq.read_table(ROOT / "examples" / "data" / f"{rows}.parquet")
        pq.write_table(table.slice(0, 4000), folder / f"{name}.parquet")
    (folder / "adult.yaml").write_text(adult_schema(4000))
    port = free_port()
    before, serve, after = block.partition("dpserve serve\n")
    until = f"until curl -sf -o {folder}/ready http://127.0.0.1:{port}/readyz; do sleep 0.2; done"
    script = f"{before}{serve.strip()} --port {port} &\nSERVER=$!\n{until}\n{after}kill $SERVER\nwait $SERVER || true\n"
    said = follow(folder, f"export PATH=$PWD/.venv/bin:$PATH\n{script}")
    assert "result   sound" in said
    assert re.search(r"^auroc +0\.\d", said, re.M)


@pytest.mark.slow
def test_the_notebook_snippet_runs() -> None:
    (snippet,) = blocks("README.md", "python")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", snippet], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0.500000 ")


def test_make_targets_named_in_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"make ([a-z]+)", README)) <= targets
