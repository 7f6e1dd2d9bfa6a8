"""The profiles of this home: read, verified, and as programs see them."""

from __future__ import annotations

from typing import Any

from accountant.certificates.profile import PROFILE, Profile
from accountant.errors import UnknownName
from accountant.home import Home
from accountant.ledger import evaluations


def profiles_of(home: Home, dataset: str) -> list[dict[str, Any]]:
    """Return the profiles of a dataset in this home, the newest first, without their figures: for pages and
    programs.
    """
    heads = []
    for seq in evaluations.profiles_of(home.ledger.log.database, dataset):
        try:
            heads.append(head_of(seq, PROFILE.open(home, seq)[2]))
        except UnknownName:  # in another home of the same ledger
            continue
    return heads


def head_of(seq: int, profile: Profile) -> dict[str, Any]:
    """Return what a verified profile is about."""
    form = profile.form
    return {
        "job": seq,
        "entry": profile.entry,
        "dataset": form.rows.dataset,
        "schema": profile.sha256,
        "part": form.rows.part,
        "epsilon": form.claim.epsilon,
        "delta": form.claim.delta,
        "level": form.level,
        "records": form.records,
    }


def profile_to_json(seq: int, profile: Profile) -> dict[str, Any]:
    """Return a verified profile for programs. Counts are rows, to the third place."""
    predicate, grid = profile.statement["predicate"], profile.form.grid
    rows = [
        [
            {**part_row, "counts": [round(count / grid, 3) for count in part_row["counts"]]}
            for part_row in predicate[part]
        ]
        for part in ("columns", "pairs")
    ]
    noise = "laplace" if predicate["mechanisms"][0]["mechanism"] == "discrete-laplace" else "gaussian"
    noise_fields = {"noise": noise, **{name: predicate[name] for name in ("variance", "levels")}}
    chosen = predicate.get("chosen")
    if chosen is not None:
        chosen = {**chosen, "scores": [round(score / grid, 3) for score in chosen["scores"]]}
    return {**head_of(seq, profile), **noise_fields, "columns": rows[0], "pairs": rows[1], "chosen": chosen}
