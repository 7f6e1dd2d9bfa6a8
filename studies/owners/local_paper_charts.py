"""The pictures of studies/owners/local-paper.md, as SVG through vl-convert, from records alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.plots import OURS, THEIRS, to_svg

Spec = dict[str, Any]
Records = Mapping[tuple[str, str], dict[str, Any]]
SHOWN = ("synthetic 56", "fashion", "mnist")
SIZE = {"width": 215, "height": 150}
MECHANISMS = {"Laplace": THEIRS[3], "Duchi": THEIRS[0], "PM": OURS[0]}
OWNERS = (("accuracy", "accuracy"), ("moved", "distance moved"))
LEARNERS = {"ncc": "centroids", "stump": "stumps", "lr": "regressions"}
PATHS = {"5": OURS[0], "7": OURS[1], "9": THEIRS[2], "no noise": "#000000"}
BEST = {
    "printed, labels in the clear": ("boosted", "ncc printed", THEIRS[0]),
    "strict, Piecewise": ("boosted", "ncc strict PM", THEIRS[1]),
    "strict, PrivUnit2": ("boosted", "ncc strict PrivUnit", THEIRS[2]),
    "strict, one of 64": ("boosted", "ncc strict one of 64", THEIRS[4]),
    "local-linear": ("ours", "local-linear", OURS[0]),
    "local-lr": ("ours", "local-lr", OURS[1]),
    "shared-additive": ("ours", "shared-additive", OURS[2]),
}


def draw(records: Records, folder: Path) -> None:
    """All of them into `folder`; of sets that were measured."""
    shown = [name for name in SHOWN if all((name, part) in records for part in ("tables", "boosted", "ours"))]
    found = {name: {part: records[name, part]["found"] for part in ("tables", "boosted", "ours")} for name in shown}
    titles = {name: records[name, "tables"]["title"] for name in shown}

    def rows_of(kind: Callable[..., Spec], part: str, learners: list[str], *whats: str) -> list[list[Spec]]:
        """A row of panels for each learner and each of what is shown of it."""
        asked = [(key, (each,) if each else ()) for key in learners for each in whats or ("",)]
        return [[kind(found[name][part], key, *what, titles[name]) for name in shown] for key, what in asked]

    boosted = ["ncc", "stump"]
    _save(folder / "local-paper-first.svg", rows_of(_first, "tables", list(LEARNERS)), MECHANISMS)
    _save(folder / "local-paper-rounds.svg", rows_of(_path, "boosted", boosted, "path"), PATHS)
    _save(folder / "local-paper-weights.svg", rows_of(_path, "boosted", boosted, "alphas", "base_errors"), PATHS)
    errors = [[_errors(found[name], titles[name]) for name in shown]]
    _save(folder / "local-paper-errors.svg", errors, {kind: colour for kind, (_, _, colour) in BEST.items()})
    if "mnist" in found:
        panels = [_owners(found["mnist"]["tables"], *each) for each in OWNERS]
        _save(folder / "local-paper-owners.svg", [panels], {kind: MECHANISMS[kind] for kind in ("Duchi", "PM")})


def _lines(points: list[Spec], x: Spec, y: Spec, title: str, level: float | None = None) -> Spec:
    """A line for each `kind` of points {x, y, kind}, and a dashed one at `level`."""
    encoding = {
        "x": {"field": "x", "type": "quantitative", **x},
        "y": {"field": "y", "type": "quantitative", **y},
        "color": {"field": "kind", "type": "nominal", "title": None},
    }
    mark = {"type": "line", "point": {"size": 18}, "strokeWidth": 1.6, "clip": True}
    layers: list[Spec] = [{"data": {"values": points}, "mark": mark, "encoding": encoding}]
    if level is not None:
        rule = {"type": "rule", "strokeDash": [4, 3], "color": "#666666"}
        layers.append({"data": {"values": [{"y": level}]}, "mark": rule, "encoding": {"y": encoding["y"]}})
    return {"title": {"text": title, "fontSize": 11}, "layer": layers, **SIZE}


def _first(cells: Mapping[str, Any], learner: str, title: str) -> Spec:
    epsilons = (1, 3, 5, 7, 9)
    points = [
        {"x": epsilon, "y": fmean(cells[f"{learner} {kind} {epsilon}"]["accuracy"]), "kind": kind}
        for kind in MECHANISMS
        for epsilon in epsilons
    ]
    y = {"title": "accuracy", "scale": {"domain": [0.4, 1], "zero": False}}
    x = {"title": "epsilon", "axis": {"values": list(epsilons)}}
    return _lines(points, x, y, f"{title}: {LEARNERS[learner]}", fmean(cells[f"{learner} none 0"]["accuracy"]))


def _path(cells: Mapping[str, Any], learner: str, which: str, title: str) -> Spec:
    named = {
        "no noise": f"{learner} none 0",
        **{epsilon: f"{learner} printed {epsilon}" for epsilon in ("5", "7", "9")},
    }
    points = [
        {"x": at + 1, "y": value, "kind": kind}
        for kind, key in named.items()
        if key in cells
        for at, value in enumerate(cells[key][which])
    ]
    words = {"path": "error", "alphas": "alpha", "base_errors": "error of the base learner"}[which]
    y = {"title": words, "scale": {"zero": which == "alphas"}}
    return _lines(points, {"title": "base learners"}, y, f"{title}: {LEARNERS[learner]}")


def _errors(cells: Mapping[str, Any], title: str) -> Spec:
    points, epsilons = [], ("0.5", "1", "2", "5", "7")
    for kind, (part, key, _) in BEST.items():
        for epsilon in epsilons:
            cell = cells[part].get(f"{key} {epsilon}")
            if cell is None:
                continue
            points.append(
                {"x": float(epsilon), "y": fmean(cell if isinstance(cell, list) else cell["errors"]), "kind": kind}
            )
    x = {
        "title": "epsilon",
        "scale": {"type": "log", "nice": False},
        "axis": {"values": list(map(float, epsilons)), "format": "~g"},
    }
    return _lines(points, x, {"title": "error", "scale": {"domain": [0, 0.5]}}, title, fmean(cells["ours"]["central"]))


def _owners(cells: Mapping[str, Any], which: str, words: str) -> Spec:
    keys = [key.split() for key in cells if key.startswith("owners ")]
    points = [
        {"x": int(owners), "y": fmean(cells[f"owners {kind} {owners}"][which]), "kind": kind}
        for _, kind, owners in keys
    ]
    return _lines(points, {"title": "owners"}, {"title": words, "scale": {"zero": False}}, f"MNIST, epsilon 5: {words}")


def _save(file: Path, rows: list[list[Spec]], colours: Mapping[str, str]) -> None:
    """Panels in rows, one legend."""
    if not rows or not rows[0]:
        return
    scale = {"domain": list(colours), "range": list(colours.values())}
    for panel in (panel for row in rows for panel in row):
        panel["layer"][0]["encoding"]["color"]["scale"] = scale
    spec = {
        "background": "white",
        "config": {
            "font": "sans-serif",
            "axis": {"gridColor": "#eeeeee"},
            "view": {"stroke": None},
            "legend": {"orient": "top"},
        },
        "vconcat": [{"hconcat": row} for row in rows],
    }
    file.write_text(to_svg(spec), encoding="utf-8")
