"""A schema that fits the data, proposed from a profile that was paid for: post-processing of released counts, free.

Numbers: the range shrinks to where rows are, with a margin, where it is declared at least twice as wide; cut points lie
half of them at equal counts and half of them evenly. Categories that the noise does not tell from none fall to `other`.
Targets, and everything else of the file, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from accountant.certificates.profile import ColumnForm, Profile
from dpserve_verify.certificates.certificate import plan_of
from dpserve_verify.errors import InputError
from models.profile.columns import Column, column_of
from models.profile.figures import Noise
from models.profile.stated import noise_of
from training.rows.schema.schema import MARK, MAX_BYTES, parse_schema
from training.rows.schema.schema_text import load_yaml

WIDE = 0.5  # a range is kept unless rows are seen in less than this share of it
MARGIN = 0.1  # of the new range's width, on either side
DIGITS = 4
CUTS = ("range", "bins", "scale", "edges", "outside")  # what new cut points stand in the place of
Floats = NDArray[np.float64]
HEAD = """\
{mark}{dataset}, entry {entry} of the ledger: {epsilon} epsilon were paid for it, and this
# file follows from it for nothing. Read it before it is registered: it is public from then on. Leave what stands under
# `refined`: certificates name the profile with its price.
"""


@dataclass(frozen=True)
class Refined:
    """The new file's `text`, and what is otherwise in it: feature, was, now, why."""

    text: str
    changes: tuple[Mapping[str, str], ...]


def refine(raw: bytes, profile: Profile) -> Refined:
    """Refine the schema file `raw` by a profile. InputError unless it is the file that the profile is about."""
    schema = parse_schema(raw)
    if schema.digest != profile.sha256:
        raise InputError(
            f"schema: sha256 {schema.digest[:16]}.. is not the file that the profile is about, {profile.sha256[:16]}.."
        )
    form = profile.form
    plan = plan_of(form.mechanisms)
    noise, body = noise_of(plan, form.grid), load_yaml(raw.decode())
    changes: list[dict[str, str]] = []
    for form_column in form.columns:
        declared = body["features"].get(form_column.name)
        if declared is None or form_column.role == "target":
            continue
        column, counts = column_of(form_column), np.array(form_column.counts, np.float64) / form.grid
        if form_column.type == "numeric":
            refined = _numeric(declared, column, counts[:-1], noise)
        elif form_column.type == "categorical":
            refined = _categorical(declared, form_column, counts, noise)
        else:
            continue
        if refined is not None:
            body["features"][form_column.name], why = refined
            changes.append({"feature": form_column.name, **why})
    body["refined"] = [*(body.get("refined") or ()), named_in_schema(profile)]
    head = HEAD.format(mark=MARK, dataset=profile.form.rows.dataset, entry=profile.entry, epsilon=form.claim.epsilon)
    text = head + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
    if len(text.encode()) > MAX_BYTES:
        raise InputError(f"schema: would have more than {MAX_BYTES} bytes; refine by a profile of fewer columns")
    parse_schema(text.encode())  # what is proposed can be registered
    return Refined(text, tuple(changes))


def named_in_schema(profile: Profile) -> dict[str, Any]:
    """Spell a verified profile as a refined schema names it."""
    form = profile.form
    return {
        "entry": profile.entry,
        "dataset": profile.form.rows.dataset,
        "part": form.rows.part,
        "epsilon": form.claim.epsilon,
        "delta": form.claim.delta,
    }


def _numeric(
    declared: Mapping[str, Any], column: Column, counts: Floats, noise: Noise
) -> tuple[dict[str, Any], dict[str, str]] | None:
    low, high = column.limits
    chance = log(20 * len(counts))  # none of so many empty bins is taken to hold rows, but with a chance of about 5 %
    least = sqrt(noise.variance) * (chance / sqrt(2) if noise.laplace else sqrt(2 * chance))
    filled = np.flatnonzero(counts > least)
    if not len(filled):
        return None
    first, last, (start, end) = int(filled[0]), int(filled[-1]), column.ends
    occupied = float(low[first]), float(high[last])
    margin = MARGIN * (occupied[1] - occupied[0])
    narrow = occupied[1] - occupied[0] < WIDE * (end - start)
    ends = (max(start, occupied[0] - margin), min(end, occupied[1] + margin)) if narrow else (start, end)
    number = int(declared.get("bins", 32)) if "range" in declared else len(declared["edges"])
    edges = _cuts(low, high, counts, ends, number)
    if edges == [*dict.fromkeys(map(_short, map(float, column.feature.edges)))]:  # type: ignore[union-attr]
        return None
    was = f"{_short(start)} to {_short(end)}, {len(column.limits[0]) - 1} cut points"
    why = "rows are seen in a small part of the range" if narrow else "cut points where rows are"
    now = f"{edges[0]} to {_short(ends[1])}, {len(edges)} cut points"
    written = {key: value for key, value in declared.items() if key not in CUTS}
    return {**written, "edges": edges}, {"was": was, "now": now, "why": why}


def _cuts(low: Floats, high: Floats, counts: Floats, ends: tuple[float, float], number: int) -> list[float]:
    """Return `number` cut points within `ends`, from the low end on: half at equal counts, rows taken to lie evenly in
    each bin; half even.
    """
    rows = np.maximum(counts, 0.0)
    points = np.concatenate([low[:1], high])
    mass = np.concatenate([[0.0], np.cumsum(rows)]) + 1e-9 * np.arange(len(points))
    least, most = (float(mass_at) for mass_at in np.interp(np.array(ends), points, mass))
    equal = np.interp(np.linspace(least, most, number // 2 + 2)[1:-1], mass, points).tolist()
    even = [ends[0] + (ends[1] - ends[0]) * at / (number - number // 2) for at in range(number - number // 2)]
    return sorted({_short(cut) for cut in equal + even if ends[0] < cut < ends[1]} | {_short(ends[0])})


def _categorical(
    declared: Mapping[str, Any], stated: ColumnForm, counts: Floats, noise: Noise
) -> tuple[dict[str, Any], dict[str, str]] | None:
    values = stated.values or []
    least = noise.z * sqrt(noise.variance)
    names = [value for value, count in zip(declared["values"], counts, strict=False) if count > least]
    if len(names) == len(values) or not names:
        return None
    gone = [value for value in values if value not in map(str, names)]
    why = f"the noise does not tell {', '.join(gone[:3])}{' ..' if len(gone) > 3 else ''} from none: they are `other`"
    return {**declared, "values": names}, {"was": f"{len(values)} values", "now": f"{len(names)} values", "why": why}


def _short(number: float) -> float:
    """Round to DIGITS significant digits: people read cut points."""
    return float(f"{number:.{DIGITS}g}")
