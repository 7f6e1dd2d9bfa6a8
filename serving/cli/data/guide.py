"""`dpserve dataset guide`: from a file to a registered dataset and its first plan, question by question."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import yaml

from accountant.home import Home
from dpserve_verify.certificates.plain_words import meaning
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget
from serving.cli import train
from serving.cli.backends.user import require_access
from serving.cli.data.register import register
from serving.cli.terminal import Json, align_columns, show_busy
from training.datasets.drafts.columns import (
    ColumnAnswer,
    ColumnGroup,
    group_columns,
    parse_public,
    parse_target,
    split_list,
)
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.rows.schema.schema import parse_schema

T = TypeVar("T")
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
    home = Home.open()
    require_access(home, "steward")
    name = name or re.sub(r"[^A-Za-z0-9_.-]", "-", data.name.partition(".")[0])
    with show_busy("looking at how it is written"):
        proposal = SchemaProposal.of_file(data)
    print(align_columns(_table(proposal)), end="\n\n")
    if proposal.reading:
        print(proposal.reading, end="\n\n")
    answers = _ask_columns(proposal)
    targets = [answer.columns[0] for answer in answers if answer.role == "target"]
    body = proposal.to_schema(answers, ask("Rows, about, as everybody may know", None, int))
    place = Path(f"{name}.yaml")
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=120)
    parsed = parse_schema(text.encode())
    if place.exists() and ask(f"{place} exists; write over it (yes or no)", "no", _yes) is False:
        raise InputError(f"{place}: exists; say another --name")
    place.write_text(text, "utf-8")
    with show_busy("checking every row"):
        problems = check_file(parsed, data).problems
    for problem in problems:
        print(f"- {problem}")
    options = _ask_total(home, proposal.people)
    command = ["dpserve", "dataset", "register", name, "--data", str(data), "--schema", str(place)]
    command += [part for key, value in options.items() if value is not None for part in (f"--{key}", str(value))]
    print(f"\nThe same by one command:\n{shlex.join(command)}")
    if problems:
        raise InputError(f"schema: {len(problems)} problems are above; mend {place}, and run that command")
    if not ask("Register it now (yes or no)", "no", _yes):
        return
    family = options.pop("family")
    register(name=name, data=str(data), schema=place, family=[family] if family else None, **options)
    price = f"{(Decimal(home.ledger.dataset(name).budget.epsilon) / 10).normalize():f}"
    first = targets[0] if len(targets) > 1 else None
    option = f" --target {first}" if first else ""
    print(
        f"\nA first job at a tenth of the total; a plan spends nothing:\ndpserve plan {name} --epsilon {price}{option}"
    )
    train.plan(name=name, epsilon=price, target=first)


def ask(question: str, default: str | None, read: Callable[[str], T]) -> T:
    """Ask until `read` accepts the answer, and return what it makes of it. An empty answer is the default."""
    while True:
        try:
            answer = input(f"{question}{'' if default is None else f' [{default}]'}: ").strip() or default
        except EOFError:
            raise typer.Abort from None
        try:
            if answer is None:
                raise InputError("an answer is needed")
            return read(answer)
        except (ValueError, InputError) as error:
            print(f"  {error}")


def _table(proposal: SchemaProposal) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("COLUMNS", "TYPE", "WRITTEN", "ROLE")]
    for group in proposal.groups():
        may_be_unit = not group.type and any(name in proposal.people for name in group.columns)
        rows.append((group.named, group.type, group.written, "unit?" if may_be_unit else group.role))
    return rows


def _ask_columns(proposal: SchemaProposal) -> list[ColumnAnswer]:
    """Ask what is to be predicted, what is ignored, and what a person must say of the rest."""
    columns = dict(proposal.features)

    def read_names_or_none(answer: str) -> list[str]:
        return [] if answer == "none" else _read_names(answer, columns)

    def read_target(answer: str) -> str:
        return answer if parse_target(answer) else ""

    everything = {**columns, **proposal.ignore}
    targets = ask("Columns to predict, with commas", None, lambda answer: _read_names(answer, everything))
    answers = [ColumnAnswer((name,), "target", ask(OF_TARGET.format(name), None, read_target)) for name in targets]
    for name in targets:
        columns.pop(name, None)
    for name in ask("More columns to ignore, with commas, or none", "none", read_names_or_none):
        del columns[name]
        answers.append(ColumnAnswer((name,), "ignore"))
    return answers + [_ask_group(group) for group in group_columns(columns, proposal.choices)]


def _ask_group(group: ColumnGroup) -> ColumnAnswer:
    """Ask what a person must say of these columns."""
    written, year = "", ""
    if group.choices:
        written = ask(f"{group.named}: cells are written {' or '.join(group.choices)}", None, str)
    if group.has_short_year(written):
        year = str(ask(f"{group.named}: the first of the hundred years (1950: 49 is 2049)", None, int))
    if not group.wants:
        return ColumnAnswer(group.columns, "feature", written=written, first_year=year)

    def read_public(answer: str) -> str:
        return answer if answer == "ignore" or parse_public(answer, group.type) else ""

    public = ask(f"{group.named}, {group.type}: {group.wants}, or ignore", group.public or "ignore", read_public)
    if public == "ignore":
        return ColumnAnswer(group.columns, "ignore")
    return ColumnAnswer(group.columns, "feature", public, written=written, first_year=year)


def _ask_total(home: Home, people: Sequence[str]) -> dict[str, Any]:
    """Ask whose the rows are, and the total: each answer holds permanently, and none is proposed."""
    if people:
        print(f"\nMay name people: {', '.join(people[:5])}")
    unit = ask("\nOne person is named by the column (record: each row is another one)", None, str)
    most = 1 if unit == "record" else ask("Rows of one person that are used at most", "1", int)
    registered = [dataset.registration.name for dataset in home.ledger.datasets()]
    relative = (
        ask(f"People of it stand in {', '.join(registered)} as well (a name, or no)", None, str) if registered else "no"
    )
    options: dict[str, Any] = {"unit": unit, "contributions": most, "family": None if relative == "no" else relative}
    if relative != "no":
        return {**options, "epsilon": None, "delta": None, "holdout": None}
    epsilon, delta = ask("epsilon in all, permanently", None, str), ask("delta in all, permanently", None, str)
    total = Budget.of(epsilon, delta)
    print(f"  {meaning(total, unit=unit)}")
    holdout = ask("Share of the people kept aside for evaluation, like 0.2, or none; never later", None, str)
    return {**options, "epsilon": epsilon, "delta": delta, "holdout": holdout}


def _read_names(answer: str, columns: Mapping[str, Any]) -> list[str]:
    names = split_list(answer)
    if unknown := [name for name in names if name not in columns]:
        raise InputError(f"{', '.join(unknown)}: no such column")
    return names


def _yes(said: str) -> bool:
    if said not in ("yes", "no"):
        raise InputError("yes or no")
    return said == "yes"
