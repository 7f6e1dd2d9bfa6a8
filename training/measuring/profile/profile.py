"""From a request to a reserved profile: which columns, noise and price."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from statistics import fmean
from typing import Any

from accountant.home import Home
from accountant.ledger import evaluations
from accountant.ledger.families.block_rows import require_kept
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.job_kinds import Profile
from accountant.ledger.families.left import left
from accountant.ledger.families.records import HOLDOUT, Request
from dpserve_verify.certificates.predicate import STATEMENT_LIMIT
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.weights import parts_of
from models.parts.forecast import Forecast
from models.profile.chosen import MOST_CELLS as MOST_PAIR_COUNTS
from models.profile.chosen import MOST_COLUMNS, count_pairs, fineness_of, scored_pairs
from models.profile.columns import Bin, Column
from models.profile.stated import Pairs, figures, noise_of, pair_noise_of
from models.profile.synthetic import forecast_profile, noise_off
from training.learners.boosting.defaults import strength
from training.measuring.planning import Planned, is_admitted, open_account, require_admitted
from training.measuring.profile.choosing import ChoosingProfiler
from training.measuring.profile.counts import GRID, Counting, Norm, Profiler, TableCounts
from training.planning.counted_before import as_counted
from training.planning.plans import public_of
from training.requests import AUTO, ProfileRequest
from training.rows.partitions.rows import MOST_ROWS
from training.rows.schema.schema import Schema
from training.rows.tables.data import answer_feature
from training.session.learner import Recipe
from training.session.session import Public

NAME = "profile"  # stands in the place of a learner
MOST_PAIRS = 100
TWO_PARENTS_FROM = 20_000  # strength from which two parents are nearer than one: studies/statements/synthetic.md
LEAST_COLUMNS = 3  # among which pairs are chosen
MOST_CELLS = 1 << 15
MOST_NOISE = 1e9
ROOM = 8192  # bytes of a statement that are no figures of columns


@dataclass(frozen=True)
class PlannedProfile(Planned):
    """A profile of `columns`, and what can be expected of it by public numbers."""

    columns: tuple[str, ...]
    hope: Forecast

    def bought(self) -> dict[str, Any]:
        """Return what is counted, and how far off a count will be."""
        grid, parameters = GRID * self.dataset.registration.parts, self.request.parameters
        noise = noise_of(self.recipe.plan, grid)
        return {
            "noise": "laplace" if noise.laplace else "gaussian",
            "count_within": f"{noise.z * noise.variance**0.5:.1f}",
            "columns": [*self.columns],
            "pairs": [[*pair] for pair in pairs_of(parameters)],
            "around": parameters.get("around"),
            "expected": self.hope.to_json(),
        }


def plan(home: Home, question: ProfileRequest, by: str | None = None) -> PlannedProfile:
    """Rehearse and price, by the noise that is less. BudgetRefused where it would not be admitted now, with what would
    fit. Spends nothing.
    """
    part = HOLDOUT if question.part == HOLDOUT else None
    dataset, budget, schema = open_account(home, question, part, by)
    columns = _choose_columns(columns_of(schema), question.columns)
    pairs = _check_pairs(columns, question.pairs)
    public = public_of(dataset, schema.question(schema.target_names[0]), budget)
    names = {column.name for column in columns}
    around = schema.target_names[0] if question.around == AUTO and AUTO not in names else question.around
    parents = 2 if strength(public) >= TWO_PARENTS_FROM else 1
    makes = partial(_asker, columns, pairs, around, parents)
    norm, recipe = cheapest(makes, public)
    parameters: dict[str, Any] = {
        "columns": "\n".join(column.name for column in columns) if question.columns else "",
        "pairs": "\n".join("\t".join(pair) for pair in pairs),
        "noise": norm,
    }
    if around is not None:
        parameters |= {"around": around} | ({"parents": parents} if norm == "l2" and parents > 1 else {})
    request = Request(
        question.dataset, NAME, budget, parameters, "", kind=Profile(), part=part, blocks=question.blocks,
        window=dataset.window, registered=dataset.seq,
    )  # fmt: skip
    _check_room(columns, pairs, around, recipe.plan, GRID * parts_of(schema.weight))
    earlier = evaluations.find_same(home.ledger.log.database, request)
    if earlier is None:
        require_kept(dataset, question.blocks)
        require_admitted(dataset, request, recipe, smaller(dataset, makes, public))
    off_at = _off_at(columns, pairs, makes(norm), recipe.plan, as_counted(home, dataset, public))
    hope = forecast_profile(off_at, float(budget.epsilon))
    return PlannedProfile(request, recipe, dataset, earlier, tuple(column.name for column in columns), hope)


def _off_at(
    columns: Sequence[Column], pairs: Pairs, asker: Counting, plan: Plan, public: Public
) -> Callable[[float], tuple[float, float | None]]:
    """Return how far the noise alone takes a column, and a pair of them, in the mean, by the epsilon, from the noise of
    this plan. Of pairs along a tree it is not known which they will be: the mean of all that may be.
    """
    grid, widths = GRID * public.parts, [column.bins for column in columns]
    own, together = noise_of(plan, grid).variance, pair_noise_of(plan, grid).variance

    def off_at(epsilon: float) -> tuple[float, float | None]:
        less = (float(public.budget.epsilon) / epsilon) ** 2

        def mean_off(sizes: Sequence[int], variance: float) -> float:
            return fmean(noise_off(size, less * variance, public.records) for size in sizes)

        alone = mean_off(widths, own)
        if isinstance(asker, ChoosingProfiler):
            fine, around = [min(width, asker.fineness) for width in widths], asker.around
            star = [fine[around] * width for at, width in enumerate(fine) if at != around]
            tree = [fine[a] * fine[b] for a, b in scored_pairs(len(fine), around)]
            counted = count_pairs(len(fine), asker.parents)
            total = len(star) * mean_off(star, together) + (counted - len(star)) * mean_off(tree, together)
            return alone, total / counted
        place = {column.name: column.bins for column in columns}
        return alone, mean_off([place[a] * place[b] for a, b in pairs], together) if pairs else None

    return off_at


def cheapest(makes: Callable[[Norm], Counting], public: Public) -> tuple[Norm, Recipe]:
    """Choose Laplace noise, or Gaussian where there is a delta and that has less variance."""
    norms: tuple[Norm, ...] = ("l1", "l2") if public.budget.delta else ("l1",)
    recipes = {norm: makes(norm).recipe(public) for norm in norms}
    norm = min(recipes, key=lambda each: pair_noise_of(recipes[each].plan, GRID).variance)
    return norm, recipes[norm]


def smaller(dataset: Dataset, makes: Callable[[Norm], Counting], public: Public) -> Iterator[Budget]:
    """Yield budgets, the largest first, for which the release would be admitted now."""
    delta = public.budget.delta
    for candidate in (left(dataset, delta).job, left(dataset, Decimal(0)).job):
        if candidate.epsilon:
            budget = Budget(candidate.epsilon, delta)
            if is_admitted(dataset, cheapest(makes, replace(public, budget=budget))[1]):
                yield budget


def columns_of(schema: Schema) -> list[Column]:
    """Return every column of the schema, features first."""
    targets, features = set(schema.target_names), {feature.name for feature in schema.features}
    columns = [
        Column(column, "target" if column.name in targets else "feature", schema.ends.get(column.name, (0.0, 0.0)))
        for column in schema.features
    ]
    for target in schema.targets:
        if target.name not in features:
            other: list[Bin] = ["other"] if target.range is None else []
            missing: list[Bin] = [] if target.leave_out else ["missing"]
            absent = (*other, *missing)
            columns.append(Column(answer_feature(target), "target", target.range or (0.0, 0.0), absent))
    return columns


def profiler_of(schema: Schema, parameters: Mapping[str, Any]) -> tuple[Counting, list[Column]]:
    """Return what a reserved request releases, and of which columns."""
    names = str(parameters["columns"])
    columns = _choose_columns(columns_of(schema), tuple(names.split("\n")) if names else ())
    norm: Norm = "l1" if parameters["noise"] == "l1" else "l2"
    around, parents = parameters.get("around"), parents_of(parameters)
    return _asker(columns, pairs_of(parameters), around, parents, norm), columns


def _asker(columns: Sequence[Column], pairs: Pairs, around: str | None, parents: int, norm: Norm) -> Counting:
    """Return what asks for counts. Laplace noise grows with the number of pairs, so that one parent is enough there.
    InputError where pairs cannot be chosen around this column.
    """
    if around is None:
        return Profiler(_query(columns, pairs, norm))
    names, widths = [column.name for column in columns], [column.bins for column in columns]
    if around not in names:
        raise InputError(f"around={around:.80}: must be a column of the profile, of {names[:20]}")
    if pairs or not LEAST_COLUMNS <= len(names) <= MOST_COLUMNS:
        raise InputError(
            f"around: chooses the pairs among {LEAST_COLUMNS} to {MOST_COLUMNS} columns, and takes none that are named"
        )
    parents = parents if norm == "l2" else 1
    fineness = fineness_of(widths, names.index(around), parents)
    if fineness is None:
        raise InputError("columns: too many for the pairs around one of them; choose some with --columns")
    return ChoosingProfiler(tuple(columns), names.index(around), fineness, norm, parents)


def pairs_of(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the pairs of a request's parameters."""
    lines = [line.split("\t") for line in str(parameters["pairs"]).split("\n") if line]
    return [(a, b) for a, b in lines]


def parents_of(parameters: Mapping[str, Any]) -> int:
    """Return how many parents a column has in the tree of a request's chosen pairs."""
    return int(parameters.get("parents", 1))


def _choose_columns(columns: list[Column], names: tuple[str, ...]) -> list[Column]:
    by_name = {column.name: column for column in columns}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InputError(f"columns={unknown[:10]}: are not in the dataset's schema, which has {[*by_name][:20]}")
    return [by_name[name] for name in dict.fromkeys(names)] if names else columns


def _check_pairs(columns: Sequence[Column], pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    names = {column.name for column in columns}
    for a, b in pairs:
        if a == b or not {a, b} <= names:
            raise InputError(f"pairs={a},{b}: must be two different columns of the profile")
    distinct = [*dict.fromkeys(pairs)]
    if len({frozenset(pair) for pair in distinct}) < len(distinct) or len(distinct) > MOST_PAIRS:
        raise InputError(f"pairs: each once, and at most {MOST_PAIRS}")
    return distinct


def _query(columns: Sequence[Column], pairs: Pairs, norm: Norm) -> TableCounts:
    place = {column.name: at for at, column in enumerate(columns)}
    return TableCounts(
        tuple(column.bins for column in columns), tuple((place[a], place[b]) for a, b in pairs), norm
    )  # fmt: skip


def _check_room(columns: Sequence[Column], pairs: Pairs, around: str | None, plan: Plan, grid: int) -> None:
    """Raise InputError where the statement could become larger than its limit: before anything is spent."""
    noise, query = noise_of(plan, grid), _query(columns, pairs, "l1")
    width = max(noise.variance, pair_noise_of(plan, grid).variance) ** 0.5
    if width > MOST_NOISE:
        raise InputError(f"epsilon: so small that a count would be off by {width:.0e} rows; ask for more")
    if query.size > MOST_CELLS:
        raise InputError(
            f"columns: {query.size} counts in all, and a profile has at most {MOST_CELLS}; choose some with --columns, "
            "or leave pairs out"
        )
    most = int(grid * (MOST_ROWS + 40 * width))  # what lies beyond has a chance of e^-40
    blank = figures(columns, pairs, [most] * query.size, noise, None, grid)
    size = len(str(blank).encode("ascii", "backslashreplace")) + ROOM
    if around is not None:  # scores, cells, names of pairs, and the most counts that there can be
        longest = max(len(ascii(column.name)) for column in columns)
        size += len(f"{most}, ") * (len(columns) ** 2 + query.size + MOST_PAIR_COUNTS) + 6 * len(columns) * longest
    if size > STATEMENT_LIMIT:
        raise InputError(f"columns: too many for one signed statement, about {size} bytes; choose some with --columns")
