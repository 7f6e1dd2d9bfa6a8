"""One sentence of what can be expected, with its verdict, of all that is paid."""

from __future__ import annotations

import pytest

from models.parts.forecast import LADDER, NO_BETTER, Forecast, forecast_counts, next_rung
from models.profile.synthetic import NOISE, forecast_profile


def test_a_sentence_has_its_verdict_first_and_the_way_out_last():
    good = Forecast("AUROC 0.70 to 0.90", "as on other tables", least=0.2, figures={"auroc": 1})
    assert good.to_json() == {
        "auroc": 1, "better": True, "least_epsilon": 0.2, "short": "AUROC 0.70 to 0.90",
        "says": "AUROC 0.70 to 0.90, as on other tables",
    }  # fmt: skip
    bad = Forecast("AUROC 0.50 to 0.90", "as on other tables", "too few rows", 0.5, "better")
    assert (bad.better, bad.says) == (False, f"{NO_BETTER}: too few rows; better from epsilon 0.5")
    assert bad.to_json()["short"] == NO_BETTER
    assert Forecast("", "", "too few rows", None, "better").says == f"{NO_BETTER}: too few rows"


def test_the_next_rung_is_the_first_that_is_enough_and_above():
    assert next_rung(0.3, lambda rung: True) == 0.5
    assert next_rung(0.3, lambda rung: rung > 3) == 4.0
    assert next_rung(LADDER[-1], lambda rung: True) is None
    assert next_rung(0.3, lambda rung: False) is None


def test_what_a_count_is_worth_is_said_by_the_rows_of_a_group():
    """From the row on from which a count tells less than what everybody knows, and not before."""
    expects = "counts right within 15.0, 5 % of about 300 rows in a group"
    assert forecast_counts(15.0, 300.0, 0.2).says == f"{expects}, with a chance of 95 %"
    assert forecast_counts(299.0, 300.0, 0.2).better
    for within, least in ((300.0, 0.25), (599.0, 0.5), (30_000.0, None)):
        bad = forecast_counts(within, 300.0, 0.2)
        assert (bad.better, bad.least) == (False, least)
        assert bad.says.startswith(f"{NO_BETTER}: counts right within {within:,.1f}, and a group has about 300 rows")
        assert least is None or forecast_counts(within * 0.2 / least, 300.0, least).better


@pytest.mark.parametrize("pairs", [None, 0.9])
def test_a_profile_of_mostly_noise_is_called_so_with_the_epsilon_at_which_it_is_not(pairs):
    def off_at(epsilon: float) -> tuple[float, float | None]:
        return min(1.0, 0.8 * 0.1 / epsilon), None if pairs is None else min(1.0, pairs * 0.1 / epsilon)

    bad = forecast_profile(off_at, 0.1)
    assert (bad.better, bad.least) == (False, 0.25)
    assert bad.says.startswith(f"{NO_BETTER}: by the noise alone a column is 0.8 off")
    assert (", a pair of columns 0.9" in bad.says) is (pairs is not None)
    good = forecast_profile(off_at, bad.least)
    assert good.better
    assert max(good.figures["columns"], good.figures["pairs"] or 0.0) < NOISE
