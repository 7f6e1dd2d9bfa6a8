"""The methods of the Python client that follow from operations: `python tests/helpers/client_methods.py` writes them to
dpserve/operations.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from inspect import cleandoc
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from dpserve import types
from serving.app import DOORS
from serving.operations import Operation
from serving.operations.answers import Answer
from training.requests.base import request_fields
from training.requests.fields import Number

FILE = Path(__file__).resolve().parents[2] / "dpserve" / "operations.py"
HEAD = '''"""What a service is asked by its operations. Made from them: `python tests/helpers/client_methods.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict, Unpack, cast

from dpserve.ledger_reader import LedgerReader
from dpserve.transport import request_body, segment
from dpserve.types import {types}


'''
BY_HAND: Mapping[str, Callable[..., Any]] = {
    "list_datasets": lambda service, **query: service.part("datasets", **query),
    "list_families": lambda service, **query: service.part("families", **query),
    "show_dataset": lambda service, name: service.dataset(name).raw,
    "show_curve": lambda service, name, **query: service.curve(name, query.get("feature"), query.get("class")),
    "edit_model": lambda service, name, edits, reason, entry=None, dry_run=False: service.edit(
        name, edits, reason, entry=entry, dry_run=dry_run
    ),
    "list_entries": lambda service, **query: service.ask("GET", "/v1/ledger", query=query),
    "list_checkpoints": lambda service, **query: service.ask("GET", "/v1/ledger/checkpoints", query=query),
    "show_proof": lambda service, **query: service.proof(**query),
    "show_consistency": lambda service, **query: service.consistency(query["from"], query.get("to")),
    "promote_model": lambda service, name, version, reason, **flags: service.promote(name, version, reason, **flags),
    "retire_model": lambda service, name, reason: service.retire(name, reason),
    "restore_model": lambda service, name, reason: service.restore(name, reason),
    "submit_job": lambda service, **body: service.submit(**body),
    "plan_job": lambda service, **body: service.plan(**body),
    "list_jobs": lambda service, **query: service.page_of_jobs(**query),
    "show_job": lambda service, job: service.job(job),
    "cancel_job": lambda service, job: service.cancel(job),
}  # what `dpserve.Client` asks by methods of its own, whose values have more than the JSON
PART = {"q": "str | None", "after": "str | None", "limit": "int | None"}


def written() -> str:
    """The file, as it should be."""
    answers: dict[str, str] = {}
    asked = [door.operation for door in DOORS if door.operation is not None]
    methods = [_method(each, answers) for each in asked if each.function.__name__ not in BY_HAND]
    about = '"""A service that is asked over `ask`: one method for each operation."""'
    unpacked = {name for method in methods for name in re.findall(r"Unpack\[(\w+)\]", method)}
    head = HEAD.format(types=", ".join(sorted({"Json", "Number", *unpacked})))
    text = head + "".join(answers.values()) + f"class Operations(LedgerReader):\n    {about}\n\n" + "".join(methods)
    ruff = [sys.executable, "-m", "ruff", "format", "--config", str(FILE.parents[1] / "pyproject.toml"), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def _method(asked: Operation[..., Any], answers: dict[str, str]) -> str:
    parameters, path, sent = ["self"], asked.path, list[str]()
    for name in re.findall(r"{(\w+)}", asked.path):
        kind = asked.thing if name == "name" else name
        is_number = asked.parameters[name] is int
        parameters.append(f"{name}: {'int' if is_number else 'str'}")
        path = path.replace(f"{{{name}}}", f"{{{name}:d}}" if is_number else f'{{segment("{kind}", {name})}}')
    optional, body = [], asked.parameters.get("body")
    fields_of_body = () if body is None else request_fields(body)
    more = "" if body is None else body.__name__.replace("Request", "Fields")
    if hasattr(types, more):  # its own fields stand first, before those of the request that it inherits from
        own = body.__annotations__
        fields_of_body = sorted((f for f in fields_of_body if f.is_required), key=lambda f: f.name not in own)
    for field in fields_of_body:
        kind, sent = _spelled(field.type, {}, is_sent=True), [*sent, f"{field.name}={field.name}"]
        if field.is_required:
            parameters.append(f"{field.name}: {kind}")
        else:
            whole = kind if kind.endswith("None") else f"{kind} | None"
            optional.append(f"{field.name}: {whole} = None")
    query = {**(PART if "part" in asked.parameters else {}), **dict.fromkeys(asked.query, "str | None")}
    optional += [f"{name}: {kind} = None" for name, kind in query.items()]
    parameters += ["*", *optional] if optional else []
    if hasattr(types, more):
        parameters, sent = [*parameters, f"**more: Unpack[{more}]"], [*sent, "**more"]
    gives = _spelled(asked.answer, answers) if isinstance(asked.answer, type) else "Json"
    how = [f'"{asked.method}"', f'f"{path}"' if "{" in path else f'"{path}"']
    how += [f"request_body({', '.join(sent)})"] if sent else []
    how += [f"query={{{', '.join(f'{name!r}: {name}' for name in query)}}}"] if query else []
    how += ["again=True"] if asked.is_repeatable else []
    says = cleandoc(asked.function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return (
        f"    def {asked.function.__name__}({', '.join(parameters)}) -> {gives}:\n"
        f'        """{says}\n\n        Scope: {" or ".join(asked.scopes)}.\n        """\n'
        + (
            f"        return self.ask({', '.join(how)})\n\n"
            if gives == "Json"
            else f"        return cast({gives}, self.ask({', '.join(how)}))\n\n"
        )
    )


def _spelled(kind: Any, answers: dict[str, str], is_sent: bool = False) -> str:
    """A type as the client writes it; the answers within it are added to `answers`."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind == Number:
        return "Number"
    if origin is Annotated:
        return _spelled(inside[0], answers, is_sent)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inside))}]"
    spelled = [_spelled(each, answers, is_sent) for each in inside if each is not ...]
    if origin in (Union, UnionType):
        parts = list(dict.fromkeys(spelled))
        number = {"str", "int", "float", "Decimal"}
        return " | ".join(["Number", *(each for each in parts if each not in number)] if number <= {*parts} else parts)
    if origin in (tuple, list):
        return f"{'Sequence' if is_sent else 'list'}[{spelled[0]}]"
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return f"{'Mapping' if is_sent else 'dict'}[{', '.join(spelled)}]"
    if kind in (None, NoneType, Any):
        return "Any" if kind is Any else "None"
    if issubclass(kind, Answer) and kind.__name__ not in answers:
        fields, defaults = get_type_hints(kind, include_extras=True), kind.__dataclass_fields__
        lines = [
            f"    {name}: {_optional(_spelled(each, answers), defaults[name].default is None)}\n"
            for name, each in fields.items()
        ]
        answers[kind.__name__] = (
            f'class {kind.__name__}(TypedDict):\n    """{cleandoc(kind.__doc__ or "")}"""\n\n' + "".join(lines) + "\n\n"
        )
    return str(kind.__name__)


def _optional(kind: str, may_lack: bool) -> str:
    return f"NotRequired[{kind.removesuffix(' | None')}]" if may_lack else kind


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
