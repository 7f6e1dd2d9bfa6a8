"""What holds permanently is asked at every door, and answered by nobody else."""

from __future__ import annotations

from decimal import Decimal

import pytest

from accountant.errors import AnswerMissing
from dpserve_verify.errors import InputError
from training.requests.registration import RegistrationRequest

WHOLE = {"unit": "record", "epsilon": "1", "delta": "1e-6", "holdout": "none"}


def test_what_is_answered_is_not_asked():
    asked = RegistrationRequest("clinic", **WHOLE)
    asked.require_answers()
    asked.check()
    assert asked.share() is None
    assert RegistrationRequest("clinic", **{**WHOLE, "holdout": "0.2"}).share() == Decimal("0.2")
    RegistrationRequest("clinic", unit="pid", family=("other",)).require_answers()


@pytest.mark.parametrize("left_open", WHOLE)
def test_each_answer_that_is_missing_is_asked_for(left_open):
    said = {name: value for name, value in WHOLE.items() if name != left_open}
    with pytest.raises(AnswerMissing) as caught:
        RegistrationRequest("clinic", **said).require_answers()
    assert caught.value.details["answers"] == [left_open]
    assert caught.value.exit_code == 2
    assert caught.value.code == "answer_missing"


def test_a_family_shares_its_total_and_not_the_unit():
    with pytest.raises(AnswerMissing) as caught:
        RegistrationRequest("clinic", family=("other",)).require_answers()
    assert caught.value.details["answers"] == ["unit"]


@pytest.mark.parametrize("holdout", ["", "None", "no", "nan", "-"])
def test_a_share_is_a_decimal_or_none(holdout):
    with pytest.raises(InputError):
        RegistrationRequest("clinic", **{**WHOLE, "holdout": holdout}).check()
