"""Which learner is checked, and on what: one of dpserve's by its name, any class of a module, or a file of somebody
else's, sealed; rows made up from a schema, or given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from inspect import getmembers, isabstract, isclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from accountant.home import Home
from accountant.ledger.families.left import left_of
from accountant.ledger.families.records import Why
from dpserve_platform.outside import admitted
from dpserve_platform.outside.admitted import Admitted
from dpserve_platform.outside.forms import read_model
from dpserve_platform.outside.sandbox import OutsideLearner
from dpserve_platform.outside.sources import is_outside, source_of
from dpserve_platform.outside.vouched import VouchedLearner
from dpserve_platform.replay.neighbours import packed, pairs
from dpserve_platform.replay.report import ROWS, Report, check
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from training.learners import LEARNERS
from training.learners.parameters import make_learner
from training.planning.plans import public_of
from training.rows.schema.schema import Schema, parse_schema, schema_of
from training.rows.tables.data import answer_feature
from training.rows.tables.row_files import file_batches
from training.session.session import Public, Source, Vouch

# What a learner is checked on where no schema is named: numbers, a category, a truth value, two classes.
SCHEMA = b"""
target: {name: answer, classes: ["no", "yes"]}
records: 200
features:
  age: {type: numeric, range: [0, 100], bins: 8}
  height: {type: numeric, range: [0.5, 2.5], bins: 12}
  town: {type: categorical, values: [north, east, south, west]}
  member: {type: boolean}
"""


MOST_ROWS = 2_000_000  # of a table that is made up; of more, nobody's word is taken for queries of their own


@dataclass(frozen=True)
class Trial:
    """What a learner is checked on: a schema (and which target), the budget, who neighbours are, how many of them, and
    the rows: a file's, or so many that are made up.
    """

    schema: bytes = SCHEMA
    target: str | None = None
    budget: Budget = field(default_factory=lambda: Budget.of("1", "0.000001"))
    relation: Relation = Relation.ADD_REMOVE
    contributions: int = 1
    neighbours: int = 100
    rows: int = ROWS
    data: Path | None = None


def maker_of(reference: str, parameters: Mapping[str, Any] | None, modules: tuple[str, ...] = ()) -> Callable[[], Any]:
    """Return what makes a learner anew: of somebody else's (`source_of`) one that runs sealed, without rows, with
    these `modules`; else of a class (`class_of`), here. InputError where there is none.
    """
    if is_outside(reference):
        return partial(OutsideLearner, replace(source_of(reference), modules=modules), dict(parameters or {}))
    return partial(make_learner, class_of(reference), parameters)


def about(reference: str) -> dict[str, Any]:
    """Return who wrote a learner of somebody else's, and its digest; of others nothing."""
    made = maker_of(reference, None)
    source = getattr(made, "args", (None,))[0]
    return {"source": {"author": source.author, "digest": source.digest}} if isinstance(source, Source) else {}


def class_of(reference: str) -> type:
    """Return the class of a learner: one of dpserve's by its name, or of `module:Class`; of a module with one class
    that has `learn`, that one. InputError where there is none.
    """
    if reference in LEARNERS:
        return LEARNERS[reference]
    name, _, wanted = reference.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` finds it
    try:
        module = import_module(name)
    except ImportError as error:
        known = ", ".join(sorted(LEARNERS))
        raise InputError(f"learner={reference!r:.200}: {error}; name a module, or one of {known}") from None
    own = {
        called: kind
        for called, kind in getmembers(module, isclass)
        if hasattr(kind, "learn") and not isabstract(kind) and (called == wanted or kind.__module__ == name)
    }
    if wanted and wanted not in own:
        raise InputError(f"learner={reference!r:.200}: {name} has no class {wanted} with learn(session)")
    if not wanted and len(own) != 1:
        several = f"{name}:{sorted(own)[0]}" if own else "a class with learn(session)"
        raise InputError(f"learner={reference!r:.200}: {name} has {len(own)} such classes; name {several}")
    return own[wanted] if wanted else next(iter(own.values()))


def check_learner(
    reference: str,
    parameters: Mapping[str, Any] | None,
    trial: Trial,
    home: Home | None = None,
    datasets: Sequence[str] = (),
    modules: tuple[str, ...] = (),
) -> Report:
    """Record and play a learner (`maker_of`), as `trial` says; and on made-up rows of the schemas of these datasets of
    a home, as jobs on them would. InputError where it refuses such a job.
    """
    make = maker_of(reference, parameters, modules)
    return _check_all(make, parameters, trial, home, datasets, [_check(make, parameters, trial)])


def admit(
    home: Home,
    source: Source,
    name: str,
    why: Why,
    neighbours: int = Trial.neighbours,
    datasets: Sequence[str] = (),
    only: bool = False,
    declared: bool = False,
) -> Admitted:
    """Admit a learner of others to a home, once it is checked as `check_learner` does: the text that was checked, which
    is not read again. InputError where the check refuses it. `only`: for the jobs on these datasets alone, on whose
    schemas alone it is checked; so is a program that reads rows, which cannot be played on neighbours and runs twice;
    `declared`: its word is taken for how far rows move queries of its own.
    """
    named = tuple(sorted(set(datasets)))
    if only and not named:
        raise InputError("only: name the datasets for whose jobs it is admitted (--dataset)")
    if source.vouch is not None:
        for question, public in _questions(home, named, None):
            try_out(source, question, public)
        return admitted.keep(home, source, name, why, {"ok": True, "neighbours": 0}, named, declared)
    make, trial = partial(OutsideLearner, source), Trial(neighbours=neighbours)
    for question, _ in _questions(home, named, None) if declared else ():
        if question.records > MOST_ROWS:
            raise InputError(
                f"declared: a dataset of {question.records} records is larger than what a check plays ({MOST_ROWS}), "
                "and what a query does beyond is not seen; leave out --declared, and ask by dpserve's own queries"
            )
    report = _check_all(make, None, trial, home, named, [] if only else [_check(make, None, trial)])
    return admitted.keep(home, source, name, why, report.to_json(), named if only else (), declared)


def source_by(
    reference: str, author: str | None, modules: tuple[str, ...] = (), vouch: Mapping[str, Any] | None = None
) -> Source:
    """Read a learner of others, with who wrote it; None: the package, or the file's name. `vouch`: as `Vouch.to_json`
    makes it, of a program that reads rows.
    """
    source = source_of(reference)
    by = Path(source.author).name if source.author.endswith((".py", "/")) else source.author
    word = None if vouch is None else Vouch.from_json(vouch)
    return replace(source, author=author or by, modules=modules, vouch=word)


def _check_all(
    make: Callable[[], Any],
    parameters: Mapping[str, Any] | None,
    trial: Trial,
    home: Home | None,
    datasets: Sequence[str],
    reports: list[Report],
) -> Report:
    """Check on the datasets' schemas, on tables as large as these say, and return one report of all, `reports` among
    them.
    """
    for question, public in _questions(home, datasets, parameters):
        rows = max(trial.rows, 2 * public.contributions, min(question.records, MOST_ROWS))
        reports.append(check(make, question, public, trial.neighbours, rows))
    for other in reports[1:]:
        reports[0].add(other)
    return reports[0]


def _questions(
    home: Home | None, datasets: Sequence[str], parameters: Mapping[str, Any] | None
) -> Iterator[tuple[Schema, Public]]:
    """Yield what each of these datasets may be asked about each of its targets, with the largest job that fits."""
    for name in datasets:
        assert home is not None
        dataset = home.ledger.dataset(name)
        if dataset.registration.remote:
            raise InputError(f"dataset={name}: its rows stay with their owners, and no learner of others asks them")
        schema, rest = schema_of(home, dataset), left_of(dataset.families, dataset.delta).to_json()["one_job"]
        budget = dataset.families[0].budget if rest is None else Budget.of(rest["epsilon"], rest["delta"])
        for target in schema.target_names:
            question = schema.question(target, parameters)
            yield question, public_of(dataset, question, budget)


def try_out(source: Source, question: Schema, public: Public) -> None:
    """Run a program twice on the same made-up rows. InputError where it returns no model, or the same one twice: then
    no noise of this run is in it.
    """
    public, learner = replace(public, code=source), VouchedLearner(source)
    program, _ = learner.program(public, learner.recipe(public).unit)
    table, _ = next(pairs(question, None, Trial.rows, public.relation, 1, 1))
    rows = packed(question, table, public.relation)
    first, second = (read_model(program.attempt(rows), public) for _ in range(2))
    if first == second:
        raise InputError("learner: it returned the same model twice on the same rows: it draws no noise of its own")


def _check(make: Callable[[], Any], parameters: Mapping[str, Any] | None, trial: Trial) -> Report:
    schema = parse_schema(trial.schema)
    question = schema.question(trial.target, parameters)
    table = None
    if trial.data is not None:
        columns = [*question.features, answer_feature(question.only)]
        table = pa.Table.from_batches(file_batches(trial.data, columns, schema))
    trial.budget.check_delta(question.records)
    public = Public.of(question, trial.relation, trial.budget, trial.budget.delta == 0, trial.contributions)
    return check(make, question, public, trial.neighbours, trial.rows, table)
