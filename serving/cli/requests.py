"""Commands whose options are the fields of a request (`training.requests`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, cast

import typer

from dpserve_verify.errors import InputError
from serving.cli.complete import DATASETS, LEARNERS, MODELS
from training.requests import TuningRequest
from training.requests.base import Checked, Option, RequestField, request_fields

R = TypeVar("R", bound=Checked)
COMPLETIONS = {"dataset": DATASETS, "learner": LEARNERS, "against": MODELS}
PLACE = "name"  # of the argument, in every command


def takes_request(
    kind: type[R], argument: str, without: Sequence[str] = (), optional: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function of a request, and of options of its own behind it.

    Args:
        kind: The request; each field is an option, in words that the field states.
        argument: The field that is the command's one argument, NAME.
        without: Fields that the command does not take.
        optional: Fields that may be left out all the same; the function then gets what was given, not a request.
    """
    fields = [field for field in request_fields(cast(Any, kind)) if field.name not in without]

    def as_command(function: Callable[..., None]) -> Callable[..., None]:
        _, *command_options = inspect.signature(function, eval_str=True).parameters.values()

        def command(**values: Any) -> None:
            body = {field.name: values.pop(_parameter(field, argument), None) for field in fields}
            body = {name: value for name, value in body.items() if value not in (None, False, [])}
            if "parameters" in body:
                body["parameters"] = key_values("--set", body["parameters"])
            function(body if optional else kind.of(body), **values)

        request_options = [_option(field, argument, field.name in optional) for field in fields]
        command_options = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in command_options]
        command.__doc__, command.__annotations__ = function.__doc__, {}
        command.__signature__ = inspect.Signature([*request_options, *command_options])  # type: ignore[attr-defined]  # Typer reads it
        return command

    return as_command


def _parameter(field: RequestField, argument: str) -> str:
    option = field.find(Option)
    return (
        PLACE if field.name == argument else field.name if option is None else option.flag.strip("-").replace("-", "_")
    )


def _option(field: RequestField, argument: str, is_optional: bool) -> inspect.Parameter:
    """Return a field as Typer reads a parameter."""
    option, complete = field.find(Option), COMPLETIONS.get(field.name, MODELS if argument == "model" else None)
    name, words = _parameter(field, argument), field.description if option is None else option.words
    words = f"{words[:1].upper()}{words[1:]}."
    is_required = field.is_required and not is_optional
    kind: Any = str if is_required else str | None
    default: Any = inspect.Parameter.empty if is_required else None
    if field.name == argument:
        declared: Any = typer.Argument(help=words, autocompletion=complete)
    elif field.default is False:
        kind, default, declared = bool, False, typer.Option(f"--{name.replace('_', '-')}", help=words)
    elif isinstance(field.default, int):
        kind, default, declared = int, field.default, typer.Option(help=words)
    elif is_repeatable(field):
        kind, declared = list[str] | None, typer.Option(f"--{name}", help=f"{words} Repeatable.")
    else:
        default = field.default if isinstance(field.default, str) else default
        declared = typer.Option(help=words, autocompletion=COMPLETIONS.get(field.name))
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared]
    )


def is_repeatable(field: RequestField) -> bool:
    """Tell whether an option of a field may stand several times: a list, or parameters of a learner."""
    return isinstance(field.default, tuple) or field.name == "parameters"


def key_values(flag: str, pairs: Sequence[str]) -> dict[str, str]:
    """Read `key=value` texts as a mapping; InputError where one has no '=' or a key comes twice."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or key in values:
            raise InputError(f"{flag} {pair!r}: must be key=value, each key once")
        values[key] = value
    return values


def parse_tuning(grid: Sequence[str] | None, runs: str | None) -> TuningRequest:
    """Read `key=a,b,c` texts as values to try; InputError where one is not that, or a key comes twice."""
    values_of: dict[str, list[str]] = {}
    for text in grid or []:
        key, equals, values = text.partition("=")
        listed = [value.strip() for value in values.split(",")]
        if not (equals and key and all(listed)) or key in values_of:
            raise InputError(f"--grid {text!r}: must be key=a,b,c, each key once")
        values_of[key] = listed
    if not values_of:
        raise InputError("--grid: say what to try, for instance --grid rounds=50,100,200")
    body: Mapping[str, Any] = {"grid": values_of, "runs": runs}
    return TuningRequest.of(body)
