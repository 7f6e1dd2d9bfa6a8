"""studies/owners/local-paper.md and its pictures from records: every number is of a record, or the paper prints it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from local.reports.directions import gains
from studies import digests
from studies.lazybb.paper_report import table
from studies.owners import local_published as published
from studies.owners.local_mechanisms import privunit_gain
from studies.owners.local_paper_charts import draw

RESULTS = Path(__file__).parent
PAGE = Path(__file__).with_name("local_paper_page.md")
EPSILONS = ("0.5", "1", "2", "5", "7")
NONE = "—"
Records = Mapping[tuple[str, str], dict[str, Any]]

METHODS = {  # key of a record, up to epsilon: part, words
    "ncc printed": ("boosted", "centroids, printed: *label and weight in the clear*"),
    "ncc strict PM": ("boosted", "centroids, strict, Piecewise"),
    "ncc strict PrivUnit": ("boosted", "centroids, strict, PrivUnit2"),
    "ncc strict one of 64": ("boosted", "centroids, strict, one of 64"),
    "stump printed": ("boosted", "stumps, printed"),
    "stump strict PM": ("boosted", "stumps, strict, Piecewise"),
    "stump strict PrivUnit": ("boosted", "stumps, strict, PrivUnit2"),
    "stump strict one of 64": ("boosted", "stumps, strict, one of 64"),
    "lr printed": ("boosted", "regressions of owners, printed, one round"),
    "local-linear": ("ours", "**`local-linear`**, one round"),
    "local-lr": ("ours", "**`local-lr`**, one round"),
    "shared-additive": ("ours", "**`shared-additive`**, two aggregators, delta 1e-6"),
}


def write(records: Records, folder: Path) -> None:
    """local-paper.md and its pictures into `folder`."""
    (folder / "local-paper.md").write_text(page_of(records), encoding="utf-8")
    draw(records, folder)


def page_of(records: Records) -> str:
    """The page without its pictures."""
    sections: dict[str, Callable[[Records], str]] = {
        "errors": errors_tables,
        "owners": owners_table,
        "variance": lambda _: variance_table(),
        "table2": lambda found: moved_table(found, "ncc", published.TABLE_2, 0, 3),
        "table3": lambda found: moved_table(found, "stump", published.TABLE_3, 1, 3),
        "table4": lambda found: moved_table(found, "lr", published.TABLE_4, 2, 4),
        "rounds": rounds_table,
        "cost": cost,
        "older": lambda _: digests.older("owners/local-paper.md"),
    }
    page = PAGE.read_text(encoding="utf-8")
    for name, section in sections.items():
        page = page.replace("{" + name + "}", section(records))
    return page


def sets_of(records: Records) -> list[str]:
    return list(dict.fromkeys(name for name, _ in records))


def title_of(records: Records, name: str) -> str:
    return next(str(line["title"]) for (other, _), line in records.items() if other == name)


def percent(errors: list[float]) -> str:
    """Mean ± standard deviation of one run, in percent."""
    return f"{100 * fmean(errors):.1f} ± {100 * pstdev(errors):.1f}"


def found_of(records: Records, name: str, part: str) -> Mapping[str, Any]:
    return records.get((name, part), {}).get("found", {})


def errors_tables(records: Records) -> str:
    """Of each set: error in percent of every method at every epsilon, and what needs none."""
    written = []
    for name in sets_of(records):
        rows = []
        for key, (part, words) in METHODS.items():
            cells = [found_of(records, name, part).get(f"{key} {epsilon}") for epsilon in EPSILONS]
            errors = [cell if isinstance(cell, list) or cell is None else cell["errors"] for cell in cells]
            rows.append([words, *(NONE if each is None else percent(each) for each in errors)])
        about = next(line["about"] for (other, _), line in records.items() if other == name)
        alone, paths = found_of(records, name, "ours"), found_of(records, name, "boosted")
        rows_alone = [key for key in alone if key.startswith("alone ")]
        beside = [f"{key.removeprefix('alone ')} rows {percent(alone[key])}" for key in rows_alone]
        quiet = {words: paths.get(f"{key} none 0") for key, words in BASES.items()}
        last = [f"{words} {percent(cell['errors'])}" for words, cell in quiet.items() if cell]
        central = percent(alone["central"]) if "central" in alone else NONE
        lines = [
            f"### {title_of(records, name)}",
            f"d = {about['d']}, {about['tests']:,} tests.",
            table(["error, % · epsilon", *EPSILONS], rows),
            f"The user alone, with labels: {', '.join(beside)}. No privacy: regression on all owners' rows {central}; "
            f"the paper's protocol without noise: {', '.join(last)}.",
        ]
        written.append("\n\n".join(lines))
    return "\n\n".join(written)


BASES = {"ncc": "centroids", "stump": "stumps", "lr": "regressions"}


def owners_table(records: Records) -> str:
    """Who is asked for how much."""
    rows = []
    for name in sets_of(records):
        ours = found_of(records, name, "ours")
        rows.append(
            [
                title_of(records, name),
                *("{:,} x {}".format(*ours[f"{key} owners"]) if ours else NONE for key in LEARNERS),
            ]
        )
    return table(["set", *(f"`{key}`" for key in LEARNERS)], rows)


LEARNERS = ("local-linear", "local-lr")


@cache
def variance_table() -> str:
    """One of K's noise over PrivUnit2's, both at their best."""
    rows = []
    for dimension in (9, 21, 51, 101):
        ratios = [
            (privunit_gain(dimension, epsilon) / gains(dimension, 64, epsilon).max()) ** 2
            for epsilon in (0.5, 1, 2, 3, 4, 5, 7)
        ]
        rows.append([str(dimension), *(f"{ratio:.3f}" for ratio in ratios)])
    return table(["D · epsilon", "0.5", "1", "2", "3", "4", "5", "7"], rows)


def moved_table(records: Records, learner: str, printed: published.Cells, which: int, digits: int) -> str:
    """What noise moves, beside what the paper prints; and what it must not exceed."""
    rows = []
    for name in sets_of(records):
        cells, family = found_of(records, name, "tables"), name.partition(" ")[0]
        if not cells:
            continue
        apart = fmean(cells[f"{learner} none 0"]["apart"])
        theirs = published.APART[family][which]
        for kind in ("Laplace", "Duchi", "PM"):
            moved = [fmean(cells[f"{learner} {kind} {epsilon}"]["moved"]) for epsilon in published.EPSILONS]
            quoted = printed.get(family, {}).get(kind, (None,) * 5)
            both = [
                f"{_digits(one, digits)} ({NONE if other is None else _digits(other, digits)})"
                for one, other in zip(moved, quoted, strict=True)
            ]
            words = f"{title_of(records, name)}; {apart:.2f} ({NONE if theirs is None else f'{theirs:.2f}'})"
            rows.append([words if kind == "Laplace" else "", kind, *both])
    return table(["set; signal", "", *(f"epsilon {each}" for each in published.EPSILONS)], rows)


def _digits(number: float, digits: int) -> str:
    return f"{number:,.{digits}g}" if abs(number) < 100 else f"{number:,.0f}"


def rounds_table(records: Records) -> str:
    """What the paper's text says of ten rounds, beside ours."""
    rows = []
    for (family, learner), cells in published.TEN_ROUNDS.items():
        for epsilon, theirs in cells.items():
            ours = []
            for name in sets_of(records):
                key = f"{learner} {'printed' if epsilon else 'none'} {epsilon}"
                cell = found_of(records, name, "boosted").get(key) if name.partition(" ")[0] == family else None
                if cell:
                    ours.append(f"{percent(cell['errors'])} ({fmean(cell['groups']):.0f} groups)")
            rows.append(
                [family, BASES[learner], str(epsilon) if epsilon else "none", str(theirs), "; ".join(ours) or NONE]
            )
    return table(["set", "learner", "epsilon", "the paper, %", "here, %"], rows)


def cost(records: Records) -> str:
    """Processor time of all lines, and the runs of each cell."""
    total = sum(line["seconds"] for line in records.values())
    parts = {part: sum(line["seconds"] for (_, other), line in records.items() if other == part) for _, part in records}
    runs = {part: line["runs"] for (_, part), line in records.items()}
    return f"{total / 60:.0f} minutes of one processor: " + ", ".join(
        f"{part} {seconds / 60:.1f} ({runs[part]} runs of a cell)" for part, seconds in parts.items()
    )
