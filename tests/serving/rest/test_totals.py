"""A steward changes a total and sets quotas, over REST and in a browser: the same entries as by the command line."""

from __future__ import annotations

from decimal import Decimal

import ledgers
import pytest
from pages_in_process import pages_at, words

from accountant.ledger.families.left import describe_budget


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    with pages_at(ledgers.copy(ledgers.filled(), tmp_path_factory.mktemp("totals") / "home")) as found:
        found.secrets["steward"] = found.token("the-steward", "steward")
        yield found


def newest(pages):
    return pages.home.ledger.log.entry(pages.home.ledger.log.size() - 1).value


def test_quota_and_total_are_entries_with_who_and_why(pages):
    assert pages.send("/ui/datasets/adult/quotas", "steward", analyst="ana", share="0.4", reason="a").status_code == 303
    assert {each["analyst"]: each["quota"] for each in pages.home.ledger.quotas("adult")}["ana"] == "0.4"
    assert newest(pages)["by"].startswith("token:")
    before = Decimal(describe_budget(pages.home.ledger.dataset("adult"))["total"]["epsilon"])
    answer = pages.send("/ui/datasets/adult/budget", "steward", epsilon=str(before + 1), reason="board, decision 14")
    assert answer.status_code == 303
    assert newest(pages)["reason"] == "board, decision 14"
    assert Decimal(describe_budget(pages.home.ledger.dataset("adult"))["total"]["epsilon"]) == before + 1


@pytest.mark.parametrize(
    ("path", "fields", "says"),
    [
        ("quotas", {"analyst": "ana", "share": "1.5", "reason": "a"}, "share"),
        ("quotas", {"analyst": "ana", "share": "much", "reason": "a"}, "share"),
        ("budget", {"epsilon": "-1", "reason": "a"}, "epsilon"),
        ("budget", {"epsilon": "2", "reason": ""}, "reason"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(pages, path, fields, says):
    size = pages.home.ledger.log.size()
    answer = pages.send(f"/ui/datasets/adult/{path}", "steward", **fields)
    assert answer.status_code == 400
    assert "That was not done" in words(answer)
    assert says in words(answer)
    assert pages.home.ledger.log.size() == size


@pytest.mark.parametrize("scope", ["train", "audit", "predict"])
def test_who_is_no_steward_is_refused_and_sees_no_form(pages, scope):
    assert pages.send("/ui/datasets/adult/budget", scope, epsilon="2", reason="a").status_code == 403
    assert 'action="/ui/datasets/adult/budget"' not in pages.page("/ui/datasets/adult", scope).text
    assert 'action="/ui/datasets/adult/budget"' in pages.page("/ui/datasets/adult", "steward").text
