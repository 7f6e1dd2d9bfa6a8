"""`dpserve dataset guide`: from a file to a registered dataset and its first plan, question by question."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from accountant.home import Home
from dpserve_verify.certificates.plain_words import meaning
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, check_name, exact_decimal
from serving.cli import train
from serving.cli.backend import open_home
from serving.cli.data.register import register_source
from serving.cli.terminal import Json, align_columns, ask, read_yes, show_busy
from training.datasets.drafts.columns import (
    ColumnAnswer,
    ColumnGroup,
    group_columns,
)
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.drafts.public_answers import parse_count, parse_public, parse_target, split_list
from training.datasets.file_check import check_file
from training.datasets.opened import RowSource
from training.requests.registration import NO_HOLDOUT, RegistrationRequest
from training.rows.schema.schema import parse_schema

ELSEWHERE = (
    "guide: asks on a terminal. Elsewhere: dpserve schema draft FILE --data > NAME.yaml, fill it in, dpserve schema "
    "check NAME.yaml --data FILE, dpserve dataset register NAME --data FILE --schema NAME.yaml --unit COLUMN|record "
    "--epsilon E --delta D (or --family NAME)"
)
OF_TARGET = (
    "{}: its classes in order, the last is the one looked for (no, yes; where it is rare, about its share: no, yes "
    "share 0.02), or LOW .. HIGH; then leave-out, where rows may lack it"
)


def guide(
    data: Annotated[Path, typer.Argument(help="A file or folder of rows.")],
    name: Annotated[str | None, typer.Option(help="The dataset's name; the file's when left out.")] = None,
    json: Json = False,
) -> None:
    """Register a dataset by answering questions: columns, person, total. Shows every default, and the first plan.

    What is public is yours to say: dpserve looks at how cells are written, and proposes no range and no category.
    Writes NAME.yaml, and the command that says the same. For a terminal; elsewhere use the commands that it names.

    \b
    dpserve dataset guide visits.csv
    """
    if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(ELSEWHERE)
    home = open_home("steward")
    name = check_name("dataset", name or re.sub(r"[^A-Za-z0-9_.-]", "-", data.name.partition(".")[0]))
    if name in [dataset.registration.name for dataset in home.ledger.datasets()]:
        raise InputError(f"dataset={name}: is registered already; say another --name")
    place = Path(f"{name}.yaml")
    if place.exists() and ask(f"{place} exists; write over it (yes or no)", "no", read_yes) is False:
        raise InputError(f"{place}: exists; say another --name")
    with show_busy("looking at how it is written"):
        proposal = SchemaProposal.of_file(data)
    print(align_columns(_table(proposal)), end="\n\n")
    if proposal.reading:
        print(proposal.reading, end="\n\n")
    answers = _ask_columns(proposal)
    targets = [answer.columns[0] for answer in answers if answer.role == "target"]
    body = proposal.to_schema(answers, ask("Approximate number of rows (will be public)", None, parse_count))
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=120)
    place.write_text(text, "utf-8")
    with show_busy("checking every row"):
        check = check_file(parse_schema(text.encode()), data)
    print(f"\n{align_columns(check.columns_table())}\n{check.words()}\n")
    if check.problems:  # nothing more is asked
        print(align_columns(check.problems_table()))
        again = shlex.join(["dpserve", "schema", "check", str(place), "--data", str(data)])
        raise InputError(
            f"schema: {place} is written, and the file cannot be registered with it; mend it, then: {again}"
        )
    options = _ask_total(home, proposal)
    command = ["dpserve", "dataset", "register", name, "--data", str(data), "--schema", str(place)]
    command += [part for key, value in options.items() if value is not None for part in (f"--{key}", str(value))]
    print(f"\nThe same by one command:\n{shlex.join(command)}")
    if not ask("Register it now (yes or no)", "no", read_yes):
        return
    family = options.pop("family")
    fields = {**options, "name": name, "family": [family] if family else []}
    request = RegistrationRequest.of({key: value for key, value in fields.items() if value not in (None, [])})
    register_source(request, RowSource(str(data)), place, is_shown=True)
    price = f"{(Decimal(home.ledger.dataset(name).budget.epsilon) / 10).normalize():f}"
    first = targets[0] if len(targets) > 1 else None
    option = f" --target {first}" if first else ""
    print(
        f"\nA first job at a tenth of the total; a plan spends nothing:\ndpserve plan {name} --epsilon {price}{option}"
    )
    train.plan(name=name, epsilon=price, target=first)


def _table(proposal: SchemaProposal) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("COLUMNS", "TYPE", "WRITTEN", "ROLE", "FIRST CELLS")]
    for group in proposal.groups():
        may_be_unit = not group.type and any(name in proposal.people for name in group.columns)
        role, cells = "unit?" if may_be_unit else group.role, " | ".join(group.cells)
        rows.append((group.named, group.type, group.written, role, cells))
    return rows


def _ask_columns(proposal: SchemaProposal) -> list[ColumnAnswer]:
    """Ask what is to be predicted, what is ignored, and what a person must say of the rest."""
    columns = dict(proposal.features)

    def read_names_or_none(answer: str) -> list[str]:
        rest = {name: column for name, column in everything.items() if name not in targets}
        return [] if answer == "none" else _read_names(answer, rest)

    def read_target(answer: str) -> str:
        return answer if parse_target(answer) else ""

    everything = {**columns, **proposal.ignore}
    targets = ask("Columns to predict, with commas", None, lambda answer: _read_names(answer, everything))
    answers = [ColumnAnswer((name,), "target", ask(OF_TARGET.format(name), None, read_target)) for name in targets]
    for name in targets:
        columns.pop(name, None)
    for name in ask("More columns to ignore, with commas, or none", "none", read_names_or_none):
        columns.pop(name, None)
        answers.append(ColumnAnswer((name,), "ignore"))
    groups = group_columns(columns, proposal.questions)
    several, kind = [group for group in groups if group.kinds], ""
    if several:
        print(f"\n{align_columns(several[0].question.table() if several[0].question else [])}")
        named = ", ".join(group.named for group in several)
        kind = ask(f"{named}: cells are {' or '.join(several[0].kinds)}", several[0].type, _one_of([*several[0].kinds]))
    return answers + [_ask_group(group, kind) for group in groups]


def _ask_group(group: ColumnGroup, kind: str) -> ColumnAnswer:
    """Ask what a person must say of these columns; `kind`: the type of those that may be of several."""
    if group.kinds:
        other_kind = "" if kind == group.type else kind
        return ColumnAnswer(group.columns, "feature", group.kinds[kind] if other_kind else "", other_kind)
    written, year = "", ""
    if group.question is not None:
        print(f"\n{align_columns(group.question.table())}")
    if group.choices:
        written = ask(f"{group.named}: cells are written {' or '.join(group.choices)}", None, _one_of(group.choices))
    if group.has_short_year(written):
        year = str(ask(f"{group.named}: the first of the hundred years (1950: 49 is 2049)", None, parse_count))
    if not group.wants:
        return ColumnAnswer(group.columns, "feature", written=written, first_year=year)

    def read_public(answer: str) -> str:
        return answer if answer == "ignore" or parse_public(answer, group.type) else ""

    public = ask(f"{group.named}, {group.type}: {group.wants}, or ignore", group.public or "ignore", read_public)
    if public == "ignore":
        return ColumnAnswer(group.columns, "ignore")
    return ColumnAnswer(group.columns, "feature", public, written=written, first_year=year)


def _ask_total(home: Home, proposal: SchemaProposal) -> dict[str, Any]:
    """Ask whose the rows are, and the total: each answer holds permanently, and none is proposed."""
    if proposal.people:
        print("\n".join([f"\nMay name people: {', '.join(proposal.people[:5])}", *proposal.people_words]))
    columns = ("record", *proposal.features, *proposal.ignore)
    unit = ask("\nOne person is named by the column (record: each row is another one)", None, _one_of(columns))
    most = 1 if unit == "record" else ask("Rows of one person that are used at most", "1", parse_count)
    registered = [dataset.registration.name for dataset in home.ledger.datasets()]
    relative = (
        ask(
            f"People of it stand in {', '.join(registered)} as well (a name, or no)", None, _one_of(["no", *registered])
        )
        if registered
        else "no"
    )
    options: dict[str, Any] = {"unit": unit, "contributions": most, "family": None if relative == "no" else relative}
    if relative != "no":
        return {**options, "epsilon": None, "delta": None, "holdout": None}

    def read_share(answer: str) -> str:
        if answer != NO_HOLDOUT and not 0 < exact_decimal("holdout", answer) < 1:
            raise InputError("a share between 0 and 1, or none")
        return answer

    epsilon = ask("epsilon in all, permanently", None, _read_decimal)
    delta = ask("delta in all, permanently", None, partial(_read_decimal, epsilon=epsilon))
    total = Budget.of(epsilon, delta)
    print(f"  {meaning(total, unit=unit)}")
    holdout = ask("Share of the people kept aside for evaluation, like 0.2, or none; never later", None, read_share)
    return {**options, "epsilon": epsilon, "delta": delta, "holdout": holdout}


def _read_names(answer: str, columns: Mapping[str, Any]) -> list[str]:
    if not (names := split_list(answer)):
        raise InputError("name a column")
    if unknown := [name for name in names if name not in columns]:
        raise InputError(f"{', '.join(unknown)}: no such column")
    return names


def _one_of(listed: Sequence[str]) -> Callable[[str], str]:
    """Return what reads one of the listed answers."""

    def read(answer: str) -> str:
        if answer not in listed:
            raise InputError(f"{answer[:40]}: none of {', '.join(listed[:9])}{', ..' if len(listed) > 9 else ''}")
        return answer

    return read


def _read_decimal(answer: str, epsilon: str = "") -> str:
    """Read an epsilon, or the delta beside it."""
    Budget.of(epsilon or answer, answer if epsilon else "0")
    return answer
