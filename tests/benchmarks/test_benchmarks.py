"""The accuracy benchmark: public schemas, one harness, lines that are not run twice, a report that says the truth."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import datasets, headline, peers, plain, report, utility
from benchmarks.lines import read_lines
from dpserve_verify.privacy.second_opinion import gaussian_delta
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import check_names

QUICK = ["--epsilons", "1", "--seeds", "1", "--sample", "1500", "--methods", "lazybb", "most-frequent"]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A run on shipped Adult: one split of 1,500 rows, one epsilon, our learner and the most frequent class."""
    folder = tmp_path_factory.mktemp("utility")
    utility.main([*QUICK, "--datasets", "adult", "--out", str(folder)])
    return folder


def lines_in(folder):
    return read_lines(folder / utility.LINES)


def line(method, epsilon, auroc, dataset="adult", seed=0, **more):
    body = {"dataset": dataset, "method": method, "epsilon": epsilon, "delta": "0.000001", "seed": seed}
    body |= {"rows": 100, "features": 2, "auroc": auroc, "accuracy": auroc, "logloss": 1 - auroc}
    return body | {"seconds": 0.1, "cpu": 0.1} | more


@pytest.mark.slow
@pytest.mark.parametrize("name", datasets.names())
def test_every_schema_is_accepted_and_has_its_classes(name):
    schema = parse_schema(datasets.schema_of(name))
    assert schema.classes is not None
    assert schema.records >= 200
    assert parse_schema(datasets.with_records(datasets.schema_of(name), 77)).records == 77


def test_the_shipped_rows_fit_their_schema_and_others_are_refused():
    for name in ("adult", "adult_test"):
        found = datasets.load(name)
        check_names(found.table.column_names, parse_schema(found.schema_bytes))
    with pytest.raises(KeyError, match="none of adult"):
        datasets.load("addult")


def test_without_a_folder_only_adult_is_there(monkeypatch, tmp_path):
    monkeypatch.delenv("DPSERVE_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="not shipped"):
        datasets.load("telco")
    pq.write_table(pa.table({"target": [1]}), tmp_path / "telco.parquet")
    monkeypatch.setenv("DPSERVE_DATA", str(tmp_path))
    assert datasets.load("telco").table.num_rows == 1


def test_numbers_become_the_publishers_groups(tmp_path):
    pq.write_table(pa.table({"x": [0.0] * 4, "target": [8, 9, 10, 11]}), tmp_path / "abalone.parquet")
    assert datasets.load("abalone", tmp_path).table["target"].to_pylist() == [0, 1, 1, 2]


@pytest.mark.slow
def test_a_quick_run_writes_a_line_per_method(quick):
    found = {one["method"]: one for one in lines_in(quick)}
    assert set(found) == {"lazybb", "most-frequent"}
    assert found["lazybb"]["epsilon"] == "1"
    assert found["lazybb"]["rows"] == 1200
    assert found["lazybb"]["auroc"] > 0.6
    assert found["most-frequent"]["epsilon"] is None
    assert found["most-frequent"]["auroc"] == 0.5


def test_a_line_that_is_there_is_not_run_again_and_again_says_otherwise(quick, tmp_path, capsys):
    shutil.copy(quick / utility.LINES, tmp_path)
    arguments = [*QUICK, "--datasets", "adult", "--out", str(tmp_path), "--no-report"]
    utility.main(arguments)
    assert capsys.readouterr().out == ""
    utility.main([*arguments, "--again", "most-frequent"])
    assert "[1/1] adult most-frequent" in capsys.readouterr().out
    assert len(lines_in(tmp_path)) == 3
    utility.tidied(tmp_path / utility.LINES)
    assert len(lines_in(tmp_path)) == 2


@pytest.mark.slow
def test_a_table_of_ones_own(tmp_path):
    generator = np.random.default_rng(1)
    x = generator.uniform(size=400)
    pq.write_table(pa.table({"x": x, "y": (x > 0.5).astype(int)}), tmp_path / "mine.parquet")
    (tmp_path / "mine.yaml").write_text(
        "target: {name: y, classes: [0, 1]}\nrecords: 400\nfeatures:\n  x: {type: numeric, range: [0, 1]}\n"
    )
    own = ["--table", str(tmp_path / "mine.parquet"), "--schema", str(tmp_path / "mine.yaml"), "--out", str(tmp_path)]
    utility.main([*own, "--epsilons", "4", "--seeds", "1", "--methods", "lazybb", "logistic"])
    assert {one["method"]: one["auroc"] > 0.9 for one in lines_in(tmp_path)} == {"lazybb": True, "logistic": True}
    assert (tmp_path / "utility-mine.svg").exists()


def test_splits_are_the_same_for_every_method_and_the_public_count_is_not_counted():
    adult = datasets.load("adult")
    one, other = (
        utility.task_of(adult, utility.Run("adult", method, "1", "0.000001", 3), 1000) for method in ("a", "b")
    )
    assert one.train.equals(other.train)
    assert one.train.num_rows == 800
    assert one.test.num_rows == 200
    assert utility.task_of(adult, utility.Run("adult", "a", "1", "0.000001", 0)).schema.records == round(0.8 * 32561)


def test_figures_of_a_judgement():
    labels = np.array([0, 0, 1, 1])
    two = utility.judge(labels, np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5], [0.2, 0.8]]))
    assert two["auroc"] == 0.75
    assert two["accuracy"] == 0.5  # a tie goes to the lower class
    assert two["bins"] == [[0.1, 0.0], [0.5, 1.0], [0.6, 0.0], [0.8, 1.0]]
    assert two["ece"] == pytest.approx((0.1 + 0.5 + 0.6 + 0.2) / 4)
    three = utility.judge(np.array([0, 1, 2]), np.eye(3))
    assert three == {"auroc": 1.0, "accuracy": 1.0, "logloss": 0.0}


def test_the_report_marks_the_best_private_mean_and_says_where_a_peer_is_ahead(tmp_path):
    lines = [
        *(line("lazybb", "1", 0.90 + seed / 100, seed=seed) for seed in (0, 1)),
        *(line("dp-ebm", "1", 0.80, seed=seed) for seed in (0, 1)),
        *(line("lazybb", "2", 0.70, seed=seed) for seed in (0, 1)),
        *(line("dp-ebm", "2", 0.75, seed=seed) for seed in (0, 1)),
        line("hist-gradient-boosting", None, 0.99),
        line("diffprivlib-rf", "1", 0.0, error="ValueError: no"),
    ]
    text = report.write(lines, tmp_path).read_text()
    table = text[text.index("| AUROC | 1 | 2 |") :]
    assert "| lazybb (ours) | **0.9050**<br>±0.0071 | 0.7000<br>±0.0000 |" in table
    assert "| DP-EBM (interpret), as shipped | 0.8000<br>±0.0000 | **0.7500**<br>±0.0000 |" in table
    assert "| *lazybb against the best peer* | +0.1050 | -0.0500 |" in table
    assert "- adult, epsilon 2: DP-EBM (interpret), as shipped by 0.0500" in text
    assert "**0.9900**" not in text
    assert "- adult, diffprivlib-rf: ValueError: no" in text
    assert (tmp_path / "utility-adult.svg").read_text().startswith("<svg")


def test_of_the_log_loss_the_lowest_is_best():
    table = report.table_of([line("lazybb", "1", 0.9), line("dp-ebm", "1", 0.8)], "adult", "logloss")
    assert report.best_of(table, "1", "logloss", report.is_private) == "lazybb"
    assert report.gap(table, "1", "logloss") == (pytest.approx(0.1), "dp-ebm")


def test_the_report_of_a_real_run_has_its_picture_and_the_figures_from_elsewhere(quick):
    text = (quick / "utility.md").read_text()
    assert "![AUROC and accuracy against epsilon on adult](utility-adult.svg)" in text
    assert "## Measured elsewhere in the same protocol" in text
    assert (quick / "utility-adult.svg").stat().st_size < 200_000


def test_a_method_may_carry_parameters_and_an_unknown_one_is_named():
    method, parameters = peers.parse("lazybb:rounds=7,rate=0.5,threshold=false")
    assert method.family == "ours"
    assert parameters == {"rounds": 7, "rate": 0.5, "threshold": False}
    with pytest.raises(KeyError, match="method=lazy: none of"):
        peers.parse("lazy")


def test_public_bounds_for_the_peers_are_the_schemas():
    adult, bank = peers.bounds_of(datasets.schema_of("adult")), peers.bounds_of(datasets.schema_of("bank"))
    assert adult["education_num"] == (1, 16)
    assert "sex" not in adult
    assert bank["balance"] == (-5000, 100000)


def test_a_peers_own_failure_becomes_a_line_and_ours_ends_the_run(monkeypatch):
    def broken(task, parameters):
        raise ValueError("as published")

    adult = datasets.load("adult")
    for family, method in (("peer", "dp-ebm"), ("ours", "lazybb")):
        monkeypatch.setitem(peers.METHODS, method, peers.Method(family, broken))
        run = utility.Run("adult", method, "1", "0.000001", 0)
        task = utility.task_of(adult, run, 500)
        if family == "peer":
            assert utility.perform(run, task, set())["error"] == "ValueError: as published"
        else:
            with pytest.raises(ValueError, match="as published"):
                utility.perform(run, task, set())


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-diffprivlib.txt", "requirements-synthetic.txt"])
def test_peers_are_pinned_by_version_and_hash(name):
    pin = re.compile(r"[\w.\[\]-]+==\S+.*--hash=sha256:[0-9a-f]{64}")
    entries = (datasets.HERE / name).read_text().replace("\\\n", " ").splitlines()
    assert entries
    assert [entry for entry in entries if not pin.fullmatch(entry)] == []


def test_the_page_has_the_table_of_the_lines():
    lines = [line for line in read_lines(headline.LEFT_OUT) if "error" not in line]
    page = (Path(headline.__file__).parents[1] / "docs" / "results" / "measured.md").read_text("utf-8")
    assert headline.headline(lines) in page


def test_logistic_regressions_of_a_few_lines_learn_where_noise_is_small():
    for method in ("plain-descent", "plain-objective"):
        task = utility.task_of(datasets.load("adult"), utility.Run("adult", method, "1000", "0.000001", 0), 2000)
        answer = peers.METHODS[method].run(task, {})
        assert utility.judge(task.labels(task.test), answer.probabilities)["auroc"] > 0.8


def test_noise_of_the_plain_regressions_is_what_the_budget_asks_for():
    """Rows of zeros leave nothing but the noise: its size in 4,000 coefficients is within 10 %, nine deviations."""
    nothing, labels, draw = np.zeros((10, 4000)), np.zeros(10), np.random.default_rng(1)
    found = plain.descend(nothing, labels, 0.5, 1e-6, draw, records=10).std()
    step = plain.RATE * 4000**0.5 / 10
    assert found == pytest.approx(step * plain.STEPS / plain.gaussian_strength(0.5, 1e-6), rel=0.1)
    found = plain.perturb(nothing, labels, 0.5, 1e-6, draw, 10).std()
    assert found == pytest.approx((8 * np.log(2e6) + 2) ** 0.5 / 0.5, rel=0.1)  # its ridge is 1 at this epsilon


def test_rows_of_the_plain_regressions_have_at_most_norm_one_and_pay_the_whole_delta():
    rows = plain.with_constant(np.random.default_rng(0).uniform(size=(50, 30)))
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12
    assert abs(gaussian_delta(plain.gaussian_strength(1.0, 1e-6) ** 2, 1.0) - 1e-6) < 1e-12
