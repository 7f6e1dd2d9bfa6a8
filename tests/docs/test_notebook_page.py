"""Every block of docs/notebook.md, as it stands, in one Python session."""

from __future__ import annotations

import re
import warnings

import onnx
import pytest
from notebooks import EXAMPLES, cells, play
from pages import blocks

from training.notebook import PublicWarning, SpendWarning


@pytest.mark.slow
def test_every_block_of_the_pages_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = blocks("docs/notebook.md", "python")
    assert len(page) == 8
    session: dict[str, object] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PublicWarning)
        warnings.simplefilter("error", SpendWarning)
        for block in page:
            exec(compile(block, "docs/notebook.md", "exec"), session)
    said = capsys.readouterr().out
    assert re.search(
        r"<Account of epsilon 3, 3 fits: \d+ % of the budget used\. Room for one more fit: up to epsilon \d\.\d+>",
        said,
    )
    assert "account: epsilon 3 does not fit: epsilon 3, 4 fits: " in said
    assert "FILL-IN" in said
    assert "<AutoClassifier(schema=Columns(" in said
    assert re.search(r"\): spent epsilon \S+ at delta 1e-6>", said)
    assert session["explained"]._repr_html_().startswith("<svg")
    assert (tmp_path / "curves.html").read_text("utf-8").lower().startswith("<!doctype html>")
    assert onnx.load(tmp_path / "model.onnx").graph.input
    assert "rounds=300: the noise drowns the signal. With records=100 and epsilon=0.1" in said
    assert session["account"].fits == 4


@pytest.mark.slow
def test_the_analysts_notebook_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "data").symlink_to(EXAMPLES / "data")
    monkeypatch.chdir(tmp_path)
    _, model, account, explained, _, _ = play("analyst")
    said = capsys.readouterr().out
    assert "spent epsilon 0.5" in repr(model)
    assert ", 1 fit: " in repr(account)
    assert explained._repr_html_().startswith("<svg")
    assert float(re.search(r"not seen: (0\.\d+)", said)[1]) > 0.7  # .856, and .001 from fit to fit: 100 of those away
    assert "account: epsilon 2 does not fit" in said
    onnx.checker.check_model(onnx.load(tmp_path / "adult.onnx"))


@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*.ipynb"))])
def test_notebooks_are_kept_without_what_they_said(name):
    for cell in cells(name):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
