"""The `dpserve` command: its commands in one tree, and how errors become a line and an exit code.

Exit codes: 0 done; 2 usage or bad input; 3 refused by the budget; 4 verification failed; 5 the job failed after it had
started; 1 anything else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.exceptions import Abort, TyperException

from accountant.errors import BudgetRefused, DpserveError
from serving import cli_data, cli_edit, cli_explain, cli_keys, cli_ledger, cli_models, cli_server, cli_tune
from serving.terminal import note

app = typer.Typer(
    name="dpserve",
    help="Train models under differential privacy, account for every release, and serve them with certificates.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS: tuple[Callable[..., None], ...] = (
    cli_server.init,
    cli_data.plan,
    cli_data.train,
    cli_tune.tune,
    cli_models.predict,
    cli_models.verify,
    cli_server.serve,
    cli_server.worker,
    cli_server.config,
)
for function in COMMANDS:
    app.command()(function)
GROUPS = {
    "dataset": cli_data.dataset,
    "schema": cli_data.schema,
    "model": cli_models.model,
    "ledger": cli_ledger.ledger,
    "key": cli_keys.key,
    "token": cli_keys.token,
}
cli_models.model.command("explain")(cli_explain.explain)
cli_models.model.command("edit")(cli_edit.edit)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def run(arguments: Sequence[str]) -> int:
    """One command; its exit code. Errors are one line on stderr, and with --json their JSON on stdout."""
    as_json = "--json" in arguments
    try:
        result = typer.main.get_command(app)(list(arguments), prog_name="dpserve", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except DpserveError as error:
        return _failed(as_json, error.to_json(), f"{error.message}{_next_step(error)}", error.exit_code)
    except TyperException as error:
        said = error.format_message()
        if said.startswith("Usage:"):  # a command without anything: its help is the answer
            note(said)
            return 2
        return _failed(as_json, _shape("usage", said), f"{said} (--help says more)", 2)
    except (Abort, KeyboardInterrupt):
        return _failed(as_json, _shape("interrupted", "interrupted"), "interrupted", 1)
    except Exception as error:
        if os.environ.get("DPSERVE_DEBUG"):
            raise
        what = _what(error)
        return _failed(as_json, _shape("internal", what), f"{what}; DPSERVE_DEBUG=1 shows where", 1)


def _what(error: Exception) -> str:
    """The message of an OSError names a file; that of any other unexpected error might hold a value from the rows."""
    named = isinstance(error, OSError) and error.filename is not None
    return f"{error.filename}: {error.strerror}" if named else f"unexpected {type(error).__name__}"  # type: ignore[attr-defined]


def _next_step(error: DpserveError) -> str:
    if isinstance(error, BudgetRefused) and error.details.get("would_fit"):
        return f" (try --epsilon {error.details['would_fit']['epsilon']})"
    return ""


def _shape(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": {}}}


def _failed(as_json: bool, body: dict[str, Any], line: str, code: int) -> int:
    if as_json:
        print(json.dumps(body, indent=2, default=str))
    note(f"dpserve: {line}")
    return code


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
