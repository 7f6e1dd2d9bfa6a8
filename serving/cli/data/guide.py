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

from accountant.certificates.plain_words import meaning
from accountant.errors import InputError
from accountant.home import Home
from accountant.privacy.budget import Budget
from serving.cli import datasets, train
from serving.cli.terminal import Json, aligned, allowed, busy
from training.datasets.drafts.columns import Answer, Line, feature_lines, lines_of, listed, public, schema_of, target
from training.rows.schema.schema import parse_schema
from training.rows.tables.file_check import check_file
from training.rows.tables.row_files import proposal

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
    allowed(home, "steward")
    name = name or re.sub(r"[^A-Za-z0-9_.-]", "-", data.name.partition(".")[0])
    with busy("looking at how it is written"):
        found = proposal(data)
    people = found["people"]
    print(aligned(_table(found)), end="\n\n")
    answers = _answers(found)
    targets = [each.columns[0] for each in answers if each.role == "target"]
    body = schema_of(found, answers, ask("Rows, about, as everybody may know", None, int))
    place = Path(f"{name}.yaml")
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=120)
    parsed = parse_schema(text.encode())
    if place.exists() and ask(f"{place} exists; write over it (yes or no)", "no", _yes) is False:
        raise InputError(f"{place}: exists; say another --name")
    place.write_text(text, "utf-8")
    with busy("checking every row"):
        problems = check_file(parsed, data)
    for problem in problems:
        print(f"- {problem}")
    options = _questions(home, people)
    command = ["dpserve", "dataset", "register", name, "--data", str(data), "--schema", str(place)]
    command += [part for key, value in options.items() if value is not None for part in (f"--{key}", str(value))]
    print(f"\nThe same by one command:\n{shlex.join(command)}")
    if problems:
        raise InputError(f"schema: {len(problems)} problems are above; mend {place}, and run that command")
    if not ask("Register it now (yes or no)", "no", _yes):
        return
    family = options.pop("family")
    datasets.register(name, str(data), place, family=[family] if family else None, **options)
    price = f"{(Decimal(home.ledger.dataset(name).budget.epsilon) / 10).normalize():f}"
    first = targets[0] if len(targets) > 1 else None
    more = f" --target {first}" if first else ""
    print(f"\nA first job at a tenth of the total; a plan spends nothing:\ndpserve plan {name} --epsilon {price}{more}")
    train.plan(name, price, target=first)


def ask(question: str, default: str | None, read: Callable[[str], T]) -> T:
    """What `read` makes of the answer, asked again while it refuses; an empty answer is the default."""
    while True:
        try:
            said = input(f"{question}{'' if default is None else f' [{default}]'}: ").strip() or default
        except EOFError:
            raise typer.Abort from None
        try:
            if said is None:
                raise InputError("an answer is needed")
            return read(said)
        except (ValueError, InputError) as error:
            print(f"  {error}")


def _table(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("COLUMNS", "TYPE", "WRITTEN", "ROLE")]
    for line in lines_of(found):
        asked = any(each in found["people"] for each in line.columns) and not line.type
        rows.append((line.named, line.type, line.written, "unit?" if asked else line.role))
    return rows


def _answers(found: Mapping[str, Any]) -> list[Answer]:
    """What is to be predicted, what is ignored, and what a person must say of the rest."""
    columns, ignored = dict(found["features"]), found["ignore"]

    def but_none(said: str) -> list[str]:
        return [] if said == "none" else _known(said, columns)

    def read(said: str) -> str:
        return said if target(said) else ""

    targets = ask("Columns to predict, with commas", None, lambda said: _known(said, {**columns, **ignored}))
    answers = [Answer((each,), "target", ask(OF_TARGET.format(each), None, read)) for each in targets]
    for each in targets:
        columns.pop(each, None)
    for each in ask("More columns to ignore, with commas, or none", "none", but_none):
        del columns[each]
        answers.append(Answer((each,), "ignore"))
    return answers + [_fill_in(line) for line in feature_lines(columns)]


def _fill_in(line: Line) -> Answer:
    """Ask for what a person must say of these columns."""
    written = ""
    if line.choices:
        written = ask(f"{line.named}: days are written {' or '.join(line.choices)}", None, str)
    if not line.wants:
        return Answer(line.columns, "feature", written=written)

    def read(said: str) -> str:
        return said if said == "ignore" or public(said, line.type) else ""

    said = ask(f"{line.named}, {line.type}: {line.wants}, or ignore", line.public or "ignore", read)
    return (
        Answer(line.columns, "ignore") if said == "ignore" else Answer(line.columns, "feature", said, written=written)
    )


def _questions(home: Home, people: Sequence[str]) -> dict[str, Any]:
    """Ask whose the rows are, and the total: each answer holds permanently, and none is proposed."""
    if people:
        print(f"\nMay name people: {', '.join(people[:5])}")
    unit = ask("\nOne person is named by the column (record: each row is another one)", None, str)
    most = 1 if unit == "record" else ask("Rows of one person that are used at most", "1", int)
    known = [each.registration.name for each in home.ledger.datasets()]
    said = ask(f"People of it stand in {', '.join(known)} as well (a name, or no)", None, str) if known else "no"
    options: dict[str, Any] = {"unit": unit, "contributions": most, "family": None if said == "no" else said}
    if said != "no":
        return {**options, "epsilon": None, "delta": None, "holdout": None}
    epsilon, delta = ask("epsilon in all, permanently", None, str), ask("delta in all, permanently", None, str)
    total = Budget.of(epsilon, delta)
    print(f"  {meaning(total, unit=unit)}")
    holdout = ask("Share of the people kept aside for evaluation, like 0.2, or none; never later", None, str)
    return {**options, "epsilon": epsilon, "delta": delta, "holdout": holdout}


def _known(said: str, columns: Mapping[str, Any]) -> list[str]:
    found = listed(said)
    if unknown := [each for each in found if each not in columns]:
        raise InputError(f"{', '.join(unknown)}: no such column")
    return found


def _yes(said: str) -> bool:
    if said not in ("yes", "no"):
        raise InputError("yes or no")
    return said == "yes"
