"""The local paper again: its mechanisms have the laws that they name, strict reports say what printed ones say, no
owner is asked twice, the whole program runs on a made-up portion, and the page says what the records say.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from local.reports.groups import Groups
from studies.owners import local_boosting as boosting
from studies.owners import local_mechanisms as mechanisms
from studies.owners import local_paper, local_paper_report, local_sets
from studies.owners.local_ours import codes_of, features_of, summed


@pytest.fixture(scope="module")
def small() -> local_sets.LocalSet:
    return local_sets.synthetic(56, rows=20_000)


def nothing(x, epsilon):
    return x


@pytest.mark.parametrize("dimension", [8, 9])
def test_mechanisms_are_unbiased_and_as_noisy_as_their_formulas_say(dimension):
    """Of 60,000 reports each: means within 6 deviations, variances within 4 %; false alarms below 1e-6."""
    reports, epsilon = 60_000, 2.0
    x = np.random.default_rng(3).standard_normal(dimension)
    x /= np.linalg.norm(x)
    t = np.exp(epsilon / 2)
    one = (x**2 / (t - 1) + (t + 3) / (3 * (t - 1) ** 2) + x**2).sum()  # its mean square, of all D numbers
    wanted = {
        mechanisms.laplace: dimension * 2 * (2 * dimension / epsilon) ** 2,
        mechanisms.sampled(mechanisms.piecewise): dimension * one - 1,
        mechanisms.privunit: mechanisms.privunit_gain(dimension, epsilon) ** -2 - 1,
        mechanisms.duchi: None,
    }
    for mechanism, variance in wanted.items():
        drawn = mechanism(np.tile(x, (reports, 1)), epsilon)
        measured = ((drawn - x) ** 2).sum(axis=1).mean()
        assert np.abs(drawn.mean(axis=0) - x).max() < 6 * np.sqrt(measured / reports)
        assert variance is None or measured == pytest.approx(variance, rel=0.04)


@pytest.mark.slow
def test_one_of_64_stays_within_a_tenth_of_privunit_up_to_epsilon_5():
    rows = local_paper_report.variance_table().splitlines()[2:]
    ratios = [[float(cell) for cell in row.strip("| ").split(" | ")[1:]] for row in rows]
    assert all(1 <= ratio <= 1.1 for row in ratios for ratio in row[:6])


def test_strict_reports_lie_within_bounds_and_say_what_printed_ones_say(small):
    group = boosting.user_group(small, small.shapes["stump"])
    heavy = boosting.Group(group.X, group.y, group.raw * np.random.default_rng(0).uniform(0, 50, group.raw.shape),
                           group.thresholds, 1.0)  # fmt: skip
    for vectors in (boosting.ncc_vectors, boosting.table_vectors, boosting.stump_vectors):
        assert np.abs(vectors(heavy)).max() <= 1 + 1e-12
    even = [boosting.printed_ncc(group, nothing, 1), boosting.strict_ncc(group, nothing, 1)]
    assert even[0].weights == pytest.approx(even[1].weights)
    assert even[0].constant == pytest.approx(even[1].constant)
    assert boosting.printed_stump(heavy, nothing, 1) == boosting.strict_stump(heavy, nothing, 1)


def test_no_owner_is_asked_twice_and_a_round_that_says_nothing_costs_its_owners(small):
    asked = []

    def useless(group, mechanism, epsilon):
        asked.append(group.X.reshape(-1, small.features))
        return boosting.Linear(np.zeros(small.features), 1.0 if len(asked) % 2 else -1.0)

    shape = small.shapes["ncc"]
    found = boosting.boost(small, shape, useless, nothing, 1.0, np.random.default_rng(0), most=7)
    rows = np.concatenate(asked)
    assert len(np.unique(rows, axis=0)) == len(rows) == 7 * shape.owners * shape.rows
    assert found.groups == 7
    assert len(found.alphas) < 7


def test_sums_at_once_are_the_sums_of_owners(small):
    features = features_of(small)
    X, y = (part[:40] for part in small.owners)
    codes, layout = codes_of(features, X), Groups(features, 8)
    slow = sum(layout.statistic([code[at : at + 4] for code in codes], y[at : at + 4]) for at in range(0, 40, 4))
    assert np.array_equal(summed(layout, codes, y, 4), slow)
    with pytest.raises(ValueError, match="each=3"):
        summed(layout, codes, y, 3)


@pytest.mark.slow
def test_the_whole_program_runs_on_a_made_up_portion(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for file, kinds, rows in (
        ("fashion_tshirt_shirt_train", (0, 6), 480), ("fashion_tshirt_shirt_test", (0, 6), 40), ("mnist5k", (4, 9), 400)
    ):  # fmt: skip
        kind = np.repeat(kinds, rows // 2)
        picture = rng.integers(0, 60, (rows, 28, 28))
        picture[kind == kinds[1], 8:20, 8:20] += 150
        columns = {f"p{at}": picture.reshape(rows, -1)[:, at].astype(np.uint8) for at in range(784)}
        pq.write_table(pa.table({**columns, "target": kind}), tmp_path / f"{file}.parquet")
    monkeypatch.setattr(local_paper, "RESULTS", tmp_path)
    monkeypatch.setattr(local_paper, "EPSILONS", (5.0,))
    monkeypatch.setattr(local_paper, "synthetic", partial(local_sets.synthetic, rows=20_000))
    monkeypatch.setattr(local_paper, "digits", partial(local_sets.digits, words=10, copies=10))
    monkeypatch.setattr(local_paper, "fashion", partial(local_sets.fashion, words=10))
    sets = ["synthetic 56", "fashion", "mnist"]
    command = ["local_paper", "--data", str(tmp_path), "--runs", "1", "--sets"]
    monkeypatch.setattr(sys, "argv", [*command, *sets])
    local_paper.main()
    records = local_paper.read(tmp_path / "local-paper.jsonl.gz")
    assert list(records) == [(name, part) for name in sets for part in ("tables", "boosted", "ours")]
    page = (tmp_path / "local-paper.md").read_text()
    assert "{" not in page
    assert all(record["title"] in page for record in records.values())
    for picture in ("first", "rounds", "weights", "errors", "owners"):
        assert "<svg" in (tmp_path / f"local-paper-{picture}.svg").read_text()
    monkeypatch.setattr(sys, "argv", [*command, "synthetic 56", "--parts", "tables"])
    local_paper.main()
    assert list(local_paper.read(tmp_path / "local-paper.jsonl.gz")) == list(records)
