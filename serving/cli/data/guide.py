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

from accountant.budget import Budget
from accountant.certificates.plain_words import best_guess
from accountant.errors import InputError
from accountant.home import Home
from serving.cli import datasets, train
from serving.cli.terminal import Json, aligned, allowed, busy
from training.rows.file_check import check_file
from training.rows.row_files import proposal
from training.rows.schema import parse_schema
from training.rows.schema_text import FILL_IN

T = TypeVar("T")
ELSEWHERE = (
    "guide: asks on a terminal. Elsewhere: dpserve schema draft FILE --data > NAME.yaml, fill it in, dpserve schema "
    "check NAME.yaml --data FILE, dpserve dataset register NAME --data FILE --schema NAME.yaml --unit COLUMN|record "
    "--epsilon E --delta D (or --family NAME)"
)
OF_TARGET = (
    "{}: its classes in order, the last is the one looked for (no, yes), or LOW .. HIGH; then leave-out, where rows "
    "may lack it"
)
MEANS = """\
  Whoever sees all that is ever released, and knows everything else, can tell at most {} times in 100 whether one
  person's rows were in it; a coin: 50. It is given once, for all jobs together."""
Columns = dict[str, dict[str, Any]]


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
        body = proposal(data)
    columns: Columns = body["features"]
    people = body.pop("people")
    print(aligned(_table(columns, body["ignore"], people)), end="\n\n")
    body["targets"] = _roles(columns, body["ignore"])
    targets = list(body["targets"])
    for group in _groups(columns):
        _fill_in(columns, group, body["ignore"])
    body |= {"ignore": list(body["ignore"]), "records": ask("Rows, about, as everybody may know", "1000", int)}
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


def _table(columns: Columns, ignored: Mapping[str, Any], people: Sequence[str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("COLUMNS", "TYPE", "WRITTEN", "ROLE")]
    for group in _groups(columns):
        forms = sorted({_form(columns[each]) for each in group} - {""})
        rows.append((_named(group), columns[group[0]]["type"], "; ".join(forms), "feature"))
    return [*rows, *((each, "", "", "unit?" if each in people else "ignore") for each in ignored)]


def _form(said: Mapping[str, Any]) -> str:
    words = {"decimal": "decimal", "written": "", "true_words": "yes:", "false_words": "no:"}
    told = ((word, said[key]) for key, word in words.items() if key in said)
    return ", ".join(
        f"{word} {value if isinstance(value, str) else ' or '.join(value)}".strip() for word, value in told
    )


def _groups(columns: Columns) -> list[list[str]]:
    """Columns of one type whose names differ by numbers alone: one answer is for all of them."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, said in columns.items():
        found.setdefault((re.sub(r"\d+", "#", name), said["type"]), []).append(name)
    return list(found.values())


def _named(group: Sequence[str]) -> str:
    return group[0] if len(group) == 1 else f"{group[0]} .. {group[-1]} ({len(group)})"


def _roles(columns: Columns, ignored: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Take the targets and what is to be ignored out of the columns; what may be answered to each target."""

    def answers(said: str) -> dict[str, Any]:
        missing = {"missing": "leave-out"} if said.endswith(" leave-out") else {}
        low, dots, high = (part.strip() for part in said.removesuffix(" leave-out").partition(".."))
        return {**({"range": [float(low), float(high)]} if dots else {"classes": _listed(low)}), **missing}

    def but_none(said: str) -> list[str]:
        return [] if said == "none" else _known(said, columns)

    targets = ask("Columns to predict, with commas", None, lambda said: _known(said, {**columns, **ignored}))
    found = {each: ask(OF_TARGET.format(each), None, answers) for each in targets}
    for each in targets:
        columns.pop(each, None)
        ignored.pop(each, None)
    for each in ask("More columns to ignore, with commas, or none", "none", but_none):
        ignored[each] = columns.pop(each)
    return found


def _fill_in(columns: Columns, group: Sequence[str], ignored: dict[str, Any]) -> None:
    """Ask for what a person must say of these columns."""
    first = columns[group[0]]
    if first.get("written") == FILL_IN:
        written = ask(f"{_named(group)}: days are written DD/MM/YYYY or MM/DD/YYYY", None, str)
        first = {**first, "written": [written]}
    wanted = {"numeric": "LOW .. HIGH", "categorical": "its values with commas", FILL_IN: "LOW .. HIGH, or values"}
    said: dict[str, Any] = {}
    if FILL_IN in str(first):
        text = f"{_named(group)}, {first['type']}: {wanted.get(first['type'], 'FIRST .. LAST')}, or ignore"
        said = ask(text, "ignore", lambda answer: {} if answer == "ignore" else _public(answer, first["type"]))
    for name in group:
        if FILL_IN in str(first) and not said:
            ignored[name] = None
            del columns[name]
        else:
            kept = {key: value for key, value in columns[name].items() if FILL_IN not in str(value)}
            columns[name] = {**kept, **({"written": first["written"]} if "written" in first else {}), **said}


def _public(answer: str, kind: str) -> dict[str, Any]:
    """A range, or values."""
    low, dots, high = (part.strip() for part in answer.partition(".."))
    if not dots:
        return {"type": "categorical", "values": _listed(answer)}
    if kind in ("date", "datetime", "time"):
        return {"range": [low, high]}
    return {"type": "numeric", "range": [float(low), float(high)]}


def _questions(home: Home, people: Sequence[str]) -> dict[str, Any]:
    """Whose the rows are, and the total."""
    unit = ask("\nOne person is told by the column (record: each row is another person)", next(iter(people), None), str)
    most = 1 if unit == "record" else ask("Rows of one person that are used at most", "1", int)
    known = [each.registration.name for each in home.ledger.datasets()]
    said = ask(f"People of it stand in {', '.join(known)} as well (a name, or no)", "no", str) if known else "no"
    options: dict[str, Any] = {"unit": unit, "contributions": most, "family": None if said == "no" else said}
    if said != "no":
        return {**options, "epsilon": None, "delta": None, "holdout": None}
    epsilon, delta = ask("epsilon in all, for ever", "3", str), ask("delta in all, for ever", "1e-6", str)
    total = Budget.of(epsilon, delta)
    print(MEANS.format(best_guess(total.epsilon, total.delta)))
    holdout: str | None = ask("Share of the people kept aside for evaluation, or none", "0.2", str)
    holdout = None if holdout == "none" else holdout
    return {**options, "epsilon": epsilon, "delta": delta, "holdout": holdout}


def _known(said: str, columns: Mapping[str, Any]) -> list[str]:
    found = _listed(said)
    if unknown := [each for each in found if each not in columns]:
        raise InputError(f"{', '.join(unknown)}: no such column")
    return found


def _listed(answer: str) -> list[str]:
    return [each.strip() for each in answer.split(",") if each.strip()]


def _yes(said: str) -> bool:
    if said not in ("yes", "no"):
        raise InputError("yes or no")
    return said == "yes"
