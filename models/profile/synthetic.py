"""Synthetic rows from a profile that was paid for: in bins, and how near they come to what was released. Free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import shake_256
from math import pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.certificates.profile import Profile
from dpserve_verify.certificates.certificate import plan_of
from models.parts.forecast import Forecast, next_rung
from models.profile.columns import Column, column_of
from models.profile.joint import Counts, Floats, draw, fit
from models.profile.stated import noise_of, pair_noise_of

Bins = NDArray[np.intp]
NOISE = 0.5  # from there on a forecast calls what is released mostly noise


@dataclass(frozen=True)
class Synthetic:
    """`bins`: of each of `columns`, the bin of each row. `quality`: of each column and pair, how far the shares of
    these rows are from those released, as total variation, and what the noise alone would come to.
    """

    columns: tuple[Column, ...]
    bins: tuple[Bins, ...]
    quality: tuple[Mapping[str, Any], ...]

    def summary(self) -> dict[str, Any]:
        """Return the mean distance of columns and of pairs, beside what the noise alone would come to."""
        means: dict[str, Any] = {}
        for name, size in (("columns", 1), ("pairs", 2)):
            lines = [line for line in self.quality if len(line["columns"]) == size]
            if lines:
                off, noise = [sum(line[key] for line in lines) / len(lines) for key in ("off", "noise")]
                means[name] = {"off": round(off, 5), "noise": round(noise, 5), "count": len(lines)}
        return means


def counted_rows(profile: Profile) -> int:
    """Return how many rows the profile counted, nearly; at least one."""
    return max(1, round(float(profile.form.records[0] or 0)))


def synthesize(
    profile: Profile, rows: int, seed: int = 0, never: Mapping[str, Sequence[int]] | None = None
) -> Synthetic:
    """Draw rows in bins from the law that fits a verified profile best, the same for the same seed. `never`: bins of a
    column that no row may have.
    """
    counts, columns = _counts(profile)
    joint = fit(counts)
    for at, column in enumerate(columns):
        joint.within[at][list((never or {}).get(column.name, ()))] = 0.0
    label = f"{profile.sha256}/{profile.entry}/{seed}"

    def uniform(name: str, size: int) -> Floats:
        words = np.frombuffer(shake_256(f"{label}/{name}".encode()).digest(8 * size), "<u8")
        return np.asarray((words >> np.uint64(11)) * 2.0**-53)

    bins = tuple(draw(joint, rows, uniform))
    return Synthetic(columns, bins, tuple(_quality(counts, columns, bins)))


def _counts(profile: Profile) -> tuple[Counts, tuple[Column, ...]]:
    form, grid = profile.form, profile.form.grid
    plan, columns = plan_of(form.mechanisms), tuple(map(column_of, form.columns))
    place = {column.name: at for at, column in enumerate(columns)}
    bins = [np.array(each.counts, np.float64) / grid for each in form.columns]
    cells = [np.arange(len(each)) for each in bins]
    if form.chosen is not None:
        cells = [np.array(each, np.intp) for each in form.chosen.cells]
    widths = [int(each.max()) + 1 for each in cells]
    tables = {}
    for each in form.pairs:
        a, b = (place[name] for name in each.columns)
        tables[a, b] = np.array(each.counts, np.float64).reshape(widths[a], widths[b]) / grid
    around = None if form.chosen is None else place[form.chosen.around]
    variances = noise_of(plan, grid).variance, pair_noise_of(plan, grid).variance
    return Counts(bins, cells, tables, variances, around), columns


def _quality(counts: Counts, columns: Sequence[Column], bins: Sequence[Bins]) -> list[dict[str, Any]]:
    rows, lines = len(bins[0]), []
    histograms: list[tuple[tuple[str, ...], Bins, Floats, float]] = []
    for column, own, released in zip(columns, bins, counts.bins, strict=True):
        histograms.append(((column.name,), np.bincount(own, minlength=column.bins), released, counts.variances[0]))
    for (a, b), table in counts.tables.items():
        code = counts.cells[a][bins[a]] * table.shape[1] + counts.cells[b][bins[b]]
        names = (columns[a].name, columns[b].name)
        histograms.append((names, np.bincount(code, minlength=table.size), table.ravel(), counts.variances[1]))
    for each, own, released, variance in histograms:
        total = max(float(released.sum()), 1.0)
        lines.append(
            {
                "columns": [*each],
                "off": min(1.0, 0.5 * float(np.abs(own / rows - released / total).sum())),
                "noise": noise_off(released.size, variance, total),
            }
        )
    return lines


def noise_off(size: int, variance: float, total: float) -> float:
    """Return how far noise of this variance takes so many counts of `total` rows, as total variation, 0 to 1."""
    return min(1.0, 0.5 * size * sqrt(2 * variance / pi) / total)


def forecast_profile(off_at: Callable[[float], tuple[float, float | None]], epsilon: float) -> Forecast:
    """Say what `noise_off` lets expect of columns and of pairs. `off_at`: both in the mean, at an epsilon; None: there
    are no pairs.
    """

    def is_noise(rung: float) -> bool:
        return max(each or 0.0 for each in off_at(rung)) >= NOISE

    columns, pairs = off_at(epsilon)
    together = "" if pairs is None else f", a pair of columns {pairs:.2g}"
    expects = f"by the noise alone a column is {columns:.2g} off{together} (0 is exact, 1 is nothing in common)"
    figures = {"columns": round(columns, 4), "pairs": None if pairs is None else round(pairs, 4)}
    if not is_noise(epsilon):
        return Forecast(expects, figures=figures)
    least = next_rung(epsilon, lambda rung: not is_noise(rung))
    return Forecast(expects, "", f"{expects}; fewer columns have less", least, "better", figures)
