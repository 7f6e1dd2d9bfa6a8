"""The part of a model card that says what the model was measured to be worth: of signed statements alone."""

from __future__ import annotations

from collections.abc import Sequence

from accountant.certificates.worth import WorthPredicate
from models.explain.card import NO_ACCURACY
from models.explain.markdown import plain
from models.worth.metrics import name_of_figure
from models.worth.words import short_figures

MEASURED = "- **Not that the model is right.** What it was measured to be worth stands at the end, as others signed it."
HEAD = """
## What it is worth

Measured privately: every figure has an interval of {percent} %, which counts how the records were drawn and the noise
that was added. Each statement is signed, stands in the ledger, and lies beside this card as `worth-JOB.dsse.json`.

| job | measured on | epsilon | figure | value | interval |
|---:|---|---|---|---|---|
"""


def with_worth(card: bytes, statements: Sequence[WorthPredicate]) -> bytes:
    """Return the card with what these verified statements say; the card itself where there is none."""
    if not statements:
        return card
    lines = []
    for form in sorted(statements, key=lambda one: one.ledger.reservation):
        bins = form.rows.seen_by_bins
        seen_words = ", whose noisy counts made the model's bins" if bins else ", which the model learnt from"
        seen_words = seen_words if form.rows.seen else ""
        pair = form.against
        other_words = "" if pair is None else f", beside {plain(pair.name)} of entry {pair.certificate}"
        where = f"{plain(form.rows.dataset)}, {form.rows.part} rows{seen_words}{other_words}"
        for metric in form.metrics:
            body = metric.to_json()
            if {"class", "group"} & body.keys():
                continue
            value, interval = short_figures(body)
            lines.append(
                f"| {form.ledger.reservation} | {where} | {form.claim.epsilon} | {plain(name_of_figure(body))} "
                f"| {value} | {interval} |"
            )
    text = card.decode().replace(NO_ACCURACY, MEASURED) + HEAD.format(percent=f"{float(statements[0].level) * 100:g}")
    return f"{text}{chr(10).join(lines)}\n".encode()
