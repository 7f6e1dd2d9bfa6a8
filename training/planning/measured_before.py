"""What models of a dataset were measured at before: it is released, and narrows a forecast at no price."""

from __future__ import annotations

from collections.abc import Iterator

from accountant.home import Home
from accountant.ledger import evaluations
from accountant.ledger.families.records import Request, request_from_entry
from models.worth import statements
from training.learners.expected import LEAST

OF_SOME = frozenset({"group", "groups", "class"})  # what a figure has that is not of all records alike
MOST = 8  # evaluations that are looked at, the newest


def measured_before(home: Home, request: Request) -> Iterator[tuple[Request, tuple[float, float]]]:
    """Yield the request and the interval of the AUROC of each model of this dataset and target that was evaluated on
    rows that it did not learn from, of learners that the study of forecasts knows.
    """
    for seq, made in evaluations.on_dataset(home.ledger.log.database, request.dataset, MOST):
        learnt, worth = request_from_entry(made), statements.quick(home, seq)
        same = (learnt.dataset, learnt.target) == (request.dataset, request.target)
        if worth is None or worth["seen"] or "against" in worth or not same:
            continue
        whole = [each for each in worth["metrics"] if each["metric"] == "auroc" and not OF_SOME & each.keys()]
        ends = [(float(each["low"]), float(each["high"])) for each in whole]
        if ends and learnt.learner in LEAST and learnt.budget.delta:
            yield learnt, ends[0]
