"""The paper's results again: what is quoted has its shape, the noise of each variant is the noise its name promises,
the page renders from JSON lines, and a real run on Adult lands where it should.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from accountant.privacy.budget import Relation
from benchmarks import paper, paper_fits, paper_other, paper_published, paper_report
from benchmarks.paper_fits import Cell, paper_round, plan_of, run
from benchmarks.paper_published import EPSILONS, SETTINGS, Setting
from benchmarks.paper_sets import coded
from training.learners.boosting.reweighting import PROJECTED_ONE, Projected


def test_quoted_numbers_have_the_papers_shape():
    assert len(EPSILONS) == 13
    for name in ("adult", "codrna", "mushroom"):
        settings, sparsity = SETTINGS[name], paper_published.SPARSITY[name]
        assert tuple(settings) == EPSILONS
        assert len(sparsity) == 13
        for at, (mean, deviation) in zip(settings.values(), sparsity, strict=True):
            assert at.rounds in paper_published.GRID_ROUNDS
            assert at.rate in paper_published.GRID_RATES
            assert at.density in paper_published.GRID_DENSITIES
            assert 0 < deviation < mean <= min(at.rounds, paper_published.LITERALS[name])
    assert sum(abs(votes) for votes, _ in paper_published.MODEL) == SETTINGS["adult"]["0.4"].rounds
    assert (len(paper_published.BEST), len(paper_published.FIGURE_2_MEASURED)) == (14, 18)
    assert all(0.7 < line.accuracy < 0.87 and line.spread < 0.06 for line in paper_published.BEST)


@pytest.mark.parametrize(
    ("variant", "quarters"), [(paper_fits.THEOREM, 1), (paper_fits.CORRECTED, 2), (paper_fits.OURS, 2)]
)
def test_exponent_is_what_the_variant_promises(variant, quarters):
    """eta = quarters / 4 * epsilon kappa n / tau on normalised weights: two units of the score w y h per agreeing
    weight, and weights that sum to kappa n PROJECTED_ONE."""
    data, at = coded("adult", "paper", None), Setting(0.35, 0.45, 39)
    _, _, _, plan = plan_of(Cell("t", "adult", variant, "1", "0", at), data, 32561)
    last = list(plan.runs)[-1][0]
    eta = float(last.event.epsilon) * 2 * at.density * 32561 * PROJECTED_ONE / last.sensitivity
    assert eta == pytest.approx(quarters / 4 * at.density * 32561 / at.rounds, rel=2e-3)


def test_coded_folds_count_all_rows():
    data, at = coded("adult", "paper", None), Setting(0.25, 0.25, 99)
    units = [
        plan_of(Cell("t", "adult", kind, "1", "0", at), data, 26049)[2]
        for kind in (paper_fits.CODED, paper_fits.CORRECTED)
    ]
    assert float(units[0] / units[1]) == pytest.approx(32561 / 26049, rel=1e-6)


def test_papers_advanced_composition():
    each = paper_round("1", "0.00001", 99)
    assert np.sqrt(2 * 99 * np.log(1e5)) * each + 99 * each * np.expm1(each) == pytest.approx(1)
    assert paper_round("1", "0", 99) == 1 / 99


def test_diagnostic_weights_are_the_learners():
    """Two programs, one measure: the diagnostic's floats and the learner's integers, where the measure is too thin."""
    margins = np.random.default_rng(3).integers(-3, 9, 5000)
    counts = np.bincount(margins + 9, minlength=19)
    integers = Projected(0.3, 0.4).weights(9, counts, 5000, Relation.ADD_REMOVE)[margins + 9]
    assert paper_other.projected(margins, 0.3, 0.4) == pytest.approx(integers / integers.sum(), rel=1e-5)


def test_best_advantage_is_found():
    data, rng = coded("adult", "paper", None), np.random.default_rng(4)
    rows = rng.integers(0, data.labels.size, 300)
    signed, bins = rng.normal(size=300), data.bins[:, rows]
    rules = [
        np.where(bins[f] == code, 1, -1) for f, feature in enumerate(data.features) for code in range(feature.bins)
    ]
    brute = max(abs(float(signed @ rule)) for rule in [*rules, np.ones(300)]) / 2
    assert paper_other.best_advantage(signed, bins, data.widths) == pytest.approx(brute)


def test_one_hot_columns_are_those_of_the_paper():
    data = coded("adult", "paper", None)
    assert data.literals == paper_published.LITERALS["adult"]
    assert "[13, 14.5)" in next(feature.values for feature in data.features if feature.name == "education_num")
    ends = data.bins.max(axis=1)
    assert all(top < len(feature.values) for top, feature in zip(ends, data.features, strict=True))


@pytest.mark.statistical
def test_real_run_on_adult():
    """Five fits, mean .827 to .828, standard deviation of one .004. False alarm: below 1e-9."""
    found = run(Cell("curves", "adult", paper_fits.OURS, "0.4", "0", SETTINGS["adult"]["0.4"]), None, 1)
    assert len(found["accuracy_of_fits"]) == len(found["rules_of_fits"]) == 5
    assert np.mean(found["accuracy_of_fits"]) > 0.81
    assert max(found["rules_of_fits"]) <= found["releases"] == 9
    assert float(found["priced"]) <= 0.4


@pytest.mark.slow
def test_page_renders_from_json_lines(tmp_path):
    record = {
        "accuracy_of_fits": [0.8123, 0.8125],
        "rules_of_fits": [5, 6],
        "releases": 5,
        "unit": "1",
        "priced": "0.1",
    }
    keys = [cell.key for part in (paper.curves, paper.repository, paper.figure_2, paper.figure_3) for cell in part()]
    advantage = {"released": [0.2, 0.01] * 50, "best": [0.3, 0.2] * 50, "margins": [0.5, 0.5]}
    lines = [
        *({"key": key, **record} for key in keys),
        {"key": paper_other.advantage_cell(paper_fits.OURS).key, **advantage},
        {"key": paper_other.model_cell().key, "accuracy": 0.83, "votes": [[4, "married"], [-1, "no gain"]]},
        {"key": "baselines|adult", "majority": 0.76, "1-rule": 0.78, "trees": 0.87},
    ]
    file = tmp_path / "paper.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    records = paper.read(file)
    assert len(records) == len(lines)
    paper_report.write(records, tmp_path)
    page = (tmp_path / "paper.md").read_text()
    assert "{" not in page
    assert "0.8124 ± 0.000" in page
    assert "| +4 | married |" in page
    assert page.count("](paper-") == len(list(tmp_path.glob("paper-*.svg"))) == 7
    for picture in tmp_path.glob("paper-*.svg"):
        assert picture.read_text().startswith("<svg")


def test_empty_page_says_so_and_does_not_fail(tmp_path):
    paper_report.write({}, tmp_path)
    assert paper_report.NONE in (tmp_path / "paper.md").read_text()


def test_finished_cells_are_not_run_again(tmp_path, monkeypatch):
    done = {"key": "baselines|adult", "majority": 0.7, "1-rule": 0.7, "trees": 0.8}
    (tmp_path / "paper.jsonl").write_text(json.dumps(done) + "\n")
    monkeypatch.setattr(paper, "NAMES", ("adult",))
    monkeypatch.setattr(paper_other, "baseline_record", lambda *_: pytest.fail("it was there"))
    monkeypatch.setattr("sys.argv", ["paper.py", "--only", "baselines", "--out", str(tmp_path)])
    paper.main()
    assert json.loads((tmp_path / "paper.jsonl").read_text()) == done
