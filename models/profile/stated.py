"""Whether what a profile states follows from the counts that it states, and the mechanism that it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.certificates.profile import METHOD, Profile
from dpserve_verify.certificates.certificate import plan_of
from dpserve_verify.certificates.sentences import draws_of
from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.privacy.events import Plan
from models.profile.chosen import choose, count_parents, fineness_of, scored_pairs
from models.profile.columns import Column, column_of
from models.profile.figures import Noise, number, table

Pairs = Sequence[tuple[str, str]]
CHOSEN = 3  # releases where pairs are chosen: columns, scores, pairs


def noise_of(plan: Plan, grid: int, draws: int = 1) -> Noise:
    """Return the noise in the counts of columns, which are in 1 / grid rows: of the first release of a profile's plan,
    `draws` times where it is Gaussian. CertificateInvalid for any other plan.
    """
    if len(plan) not in (1, CHOSEN):
        raise CertificateInvalid("mechanisms: are not those of a profile, noisy counts, and those of chosen pairs")
    return Noise.of_release(plan[0], grid, draws)


def pair_noise_of(plan: Plan, grid: int) -> Noise:
    """Return the noise in the counts of pairs: of the last release."""
    noise_of(plan, grid)
    return Noise.of_release(plan[len(plan) - 1], grid)


def figures(
    columns: Sequence[Column], pairs: Pairs, counts: Sequence[int], noise: Noise, known: int | None, grid: int
) -> dict[str, Any]:
    """Compute the figures of the counts as they were released: column after column, then pair after pair. ValueError
    where there are more or fewer counts than bins.
    """
    bins = {column.name: column.bins for column in columns}
    sizes = [*bins.values(), *(bins[a] * bins[b] for a, b in pairs)]
    if sum(sizes) != len(counts):
        raise ValueError("counts")
    parts: list[NDArray[Any]] = np.split(np.array(counts, np.float64) / grid, np.cumsum(sizes)[:-1])
    together = dict(zip(pairs, parts[len(columns) :], strict=True))
    return table(columns, parts[: len(columns)], together, noise, known, grid)


def chosen_figures(
    columns: Sequence[Column],
    around: str,
    parents: int,
    counts: Sequence[int],
    plan: Plan,
    known: int | None,
    grid: int,
) -> dict[str, Any]:
    """Compute the figures of counts, scores and counts of chosen pairs as they were released: the choice as well.
    ValueError where there are more or fewer than there can be.
    """
    widths = [column.bins for column in columns]
    at = [column.name for column in columns].index(around)
    fineness = fineness_of(widths, at, parents)
    if len(plan) != CHOSEN or fineness is None:
        raise ValueError("plan")
    own, ends = np.array(counts, np.int64), np.cumsum([sum(widths), len(scored_pairs(len(columns), at))])
    first, scores, last = np.split(own, ends)
    choice = choose(columns, np.split(first, np.cumsum(widths)[:-1]), scores.tolist(), at, fineness, parents)
    alone = figures(columns, (), first.tolist(), noise_of(plan, grid), known, grid)
    sizes = [choice.widths[a] * choice.widths[b] for a, b in choice.pairs]
    if len(scores) != ends[1] - ends[0] or sum(sizes) != len(last):
        raise ValueError("counts")
    split = zip(choice.pairs, np.split(last, np.cumsum(sizes)[:-1]), strict=True)
    named = [{"columns": [columns[a].name, columns[b].name], "counts": each.tolist()} for (a, b), each in split]
    chosen = {
        "around": around,
        "scores": scores.tolist(),
        "cells": [each.tolist() for each in choice.cells],
        "variance": number(pair_noise_of(plan, grid).variance),
    }
    return {**alone, "pairs": named, "chosen": chosen}


def check(profile: Profile) -> None:
    """Raise CertificateInvalid where a stated figure does not follow from the counts and the mechanism."""
    form = profile.form
    if form.method != METHOD:
        raise CertificateInvalid("method: this version knows another one, and cannot make its figures again")
    columns = [column_of(each) for each in form.columns]
    pairs = [(each.columns[0], each.columns[1]) for each in form.pairs]
    counts = [count for each in form.columns for count in each.counts]
    counts += [count for each in form.pairs for count in each.counts]
    lengths = [len(each.counts) for each in form.columns] == [column.bins for column in columns]
    try:
        plan = plan_of(form.mechanisms)
        if form.chosen is None:
            noise = noise_of(plan, form.grid, draws_of(form.claim.trust_model))
            own = figures(columns, pairs, counts, noise, form.rows.records, form.grid)
        else:
            at = sum(column.bins for column in columns)
            counts[at:at] = form.chosen.scores
            parents = count_parents(len(columns), len(pairs))
            own = chosen_figures(columns, form.chosen.around, parents, counts, plan, form.rows.records, form.grid)
    except (ValueError, KeyError, ArithmeticError) as error:
        raise CertificateInvalid(f"counts: are not of the columns' form ({type(error).__name__})") from None
    stated = profile.statement["predicate"]
    if not lengths or len({column.name for column in columns}) < len(columns):
        raise CertificateInvalid("columns: a name stands twice, or a column has too few or too many counts")
    wrong = [name for name, value in own.items() if not _same(stated[name], value)]
    if wrong:
        raise CertificateInvalid(f"figures: {', '.join(wrong)}: do not follow from the counts that are stated")


def _same(stated: Any, own: Any) -> bool:
    """Compare what is stated with what was computed, except for the last digits of a figure: other machines round sums
    of floats differently.
    """
    if isinstance(own, dict):
        return (
            isinstance(stated, dict)
            and stated.keys() == own.keys()
            and all(_same(stated[key], value) for key, value in own.items())
        )
    if isinstance(own, list):
        return isinstance(stated, list) and len(stated) == len(own) and all(map(_same, stated, own))
    if stated == own or not (isinstance(stated, str) and isinstance(own, str)):
        return bool(stated == own)
    try:
        a, b = float(stated), float(own)
    except ValueError:  # a name
        return False
    return abs(a - b) <= 1e-4 * max(abs(a), abs(b))
