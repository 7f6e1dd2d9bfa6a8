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

from accountant.errors import DpserveError
from serving.cli import data, edit, explain, jobs, keys, learners, ledger, models, next, placing, server, tokens, tune
from serving.cli.terminal import note, paint

app = typer.Typer(name="dpserve", pretty_exceptions_enable=False, rich_markup_mode=None)
app.callback(invoke_without_command=True)(next.start)
COMMANDS: tuple[Callable[..., None], ...] = (
    server.init,
    data.plan,
    data.train,
    tune.tune,
    models.predict,
    models.verify,
    server.serve,
    server.worker,
    server.auditor,
    server.config,
)
for function in COMMANDS:
    app.command()(function)
GROUPS = {
    "dataset": data.dataset,
    "schema": data.schema,
    "learner": learners.learner,
    "job": jobs.job,
    "model": models.model,
    "ledger": ledger.ledger,
    "key": keys.key,
    "token": tokens.token,
}
models.model.command("explain")(explain.explain)
models.model.command("edit")(edit.edit)
for function in (placing.promote, placing.retire, placing.restore):
    models.model.command()(function)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def run(arguments: Sequence[str]) -> int:
    """One command; its exit code. Errors are one line on stderr, and with --json their JSON on stdout."""
    as_json = "--json" in arguments
    try:
        result = typer.main.get_command(app)(list(arguments), prog_name="dpserve", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except DpserveError as error:
        step = next.after(error)
        return _failed(as_json, error.to_json(), error.message + (f" ({step})" if step else ""), error.exit_code)
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


def _shape(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": {}}}


def _failed(as_json: bool, body: dict[str, Any], line: str, code: int) -> int:
    if as_json:
        print(json.dumps(body, indent=2, default=str))
    note(f"{paint('dpserve:', 'bad', sys.stderr)} {line}")
    return code


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
