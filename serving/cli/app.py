"""The `dpserve` command: its commands in one tree, and how errors become a line and an exit code.

Exit codes: 0 done; 2 usage or bad input; 3 refused by the budget, or for want of a grant; 4 verification failed;
5 the job failed after it had started; 1 anything else.
"""

from __future__ import annotations

import atexit
import errno
import gc
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.exceptions import Abort, TyperException
from typer.main import get_command

from accountant.system.lazy_import import without_extra
from dpserve_verify.errors import DpserveError, TooMuch
from serving.cli.backends.choice import Needs
from serving.cli.hints import with_next_step
from serving.cli.terminal import Json, note, paint
from serving.cli.tree import Branch, LazyGroup, Leaf, Nodes, WithExtensions

EITHER, NOTHING = Needs.EITHER, Needs.NOTHING
GARBAGE = 50_000  # new objects between two looks for garbage: few commands live to see the first
KEYS = "Keys stay where the home is: whoever runs it changes them there"
CORE: Nodes = {
    "init": Leaf("server:init", instead="A laptop needs no home"),
    "plan": Leaf("train:plan", needs=EITHER),
    "train": Leaf("train:train", needs=EITHER),
    "tune": Leaf("train:tune", needs=EITHER),
    "renew": Leaf("data.renew:renew", instead="Rows are appended by the steward, where they are"),
    "evaluate": Leaf("models:evaluate", needs=EITHER),
    "profile": Leaf("data.profile:profile", needs=EITHER),
    "synthesize": Leaf("data.synthesize:synthesize", needs=EITHER),
    "charge": Leaf("data.charge:charge", needs=EITHER),
    "person": Leaf("data.person:person", needs=EITHER),
    "query": Leaf("data.query:query", needs=EITHER),
    "predict": Leaf("models:predict", needs=EITHER),
    "verify": Leaf("certificates:verify", needs=EITHER),
    "mcp": Leaf("agents:serve_agents", needs=NOTHING),
    "serve": Leaf("server:serve", instead="The operator runs it there"),
    "worker": Leaf("server:worker", instead="The operator runs it there"),
    "auditor": Leaf("server:auditor", instead="dpserve ledger audit audits the server from here"),
    "migrate": Leaf("home:migrate", instead="The operator runs it there"),
    "backup": Leaf("home:backup", instead="The operator runs it there"),
    "restore": Leaf("home:restore", needs=NOTHING),
    "login": Leaf("login:login", needs=NOTHING),
    "logout": Leaf("login:logout", needs=NOTHING),
    "config": Leaf("server:config", needs=NOTHING),
    "dataset": Branch(
        "Register datasets, and see what is left of their budgets.",
        {
            "register": Leaf("data.register:register", instead="Rows are registered by the steward, where they are"),
            "append": Leaf("data.blocks:append", instead="Rows are appended by the steward, where they are"),
            "delete": Leaf("data.blocks:delete", instead="Rows are deleted by the steward, where they are"),
            "guide": Leaf("data.guide:guide", instead="Rows are registered by the steward, where they are"),
            "budget": Leaf("datasets:change_budget", instead="The steward changes it there"),
            "quota": Leaf("datasets:set_quota", instead="The steward sets it there"),
            "withdraw": Leaf("datasets:withdraw", needs=EITHER),
            "retire": Leaf("datasets:retire", needs=EITHER),
            "restore": Leaf("datasets:restore", needs=EITHER),
            "list": Leaf("datasets:list_datasets", needs=EITHER),
            "show": Leaf("datasets:show_dataset", needs=EITHER),
            "note": Leaf("notes:note_dataset", needs=EITHER),
        },
    ),
    "schema": Branch(
        "Schemas: what everybody may know of the columns.",
        {
            "draft": Leaf("datasets:draft", needs=NOTHING),
            "check": Leaf("data.schema:check", needs=NOTHING),
            "refine": Leaf("data.refine:refine", instead="dpserve profile --out FILE.json gives what it refines by"),
            "sample": Leaf("data.schema:sample", needs=NOTHING),
        },
    ),
    "learner": Branch(
        "Learners: what can be trained, what each takes, and whether one keeps its promise.",
        WithExtensions[Leaf](
            {
                "list": Leaf("data.learners:list_learners", needs=NOTHING),
                "show": Leaf("data.learners:show_learner", needs=NOTHING),
            },
            "commands.learner",
        ),
    ),
    "job": Branch(
        "Jobs: what was asked for, how far it is, what became of it.",
        {
            "list": Leaf("jobs:list_jobs", needs=EITHER),
            "show": Leaf("jobs:show_job", needs=EITHER),
            "watch": Leaf("jobs:watch", needs=EITHER),
            "cancel": Leaf("jobs:cancel", needs=EITHER),
        },
    ),
    "model": Branch(
        "Released models and their certificates.",
        {
            "list": Leaf("models:list_models", needs=EITHER),
            "show": Leaf("released.show:show_model", needs=EITHER),
            "export": Leaf("released.export:export", needs=EITHER),
            "explain": Leaf("released.explain:explain", needs=EITHER),
            "edit": Leaf("released.edit:edit", needs=Needs.EITHER),
            "promote": Leaf("placing:promote", needs=EITHER),
            "retire": Leaf("placing:retire", needs=EITHER),
            "restore": Leaf("placing:restore", needs=EITHER),
            "note": Leaf("notes:note_model", needs=EITHER),
            "archive": Leaf("home:archive_model", instead="The operator archives it there"),
            "unarchive": Leaf("home:unarchive_model", instead="The operator does it there"),
        },
    ),
    "ledger": Branch(
        "The ledger: every release that was ever paid for.",
        {
            "show": Leaf("ledger:show_ledger", instead="dpserve ledger export writes it to files here"),
            "checkpoint": Leaf("ledger:checkpoint", needs=EITHER),
            "proof": Leaf("ledger:proof", instead="GET /v1/ledger/proof gives it"),
            "consistency": Leaf("ledger:consistency", instead="GET /v1/ledger/consistency gives it"),
            "export": Leaf("ledger:export_ledger", needs=EITHER),
            "tiles": Leaf("ledger:tiles"),
            "witness": Leaf("ledger:witness"),
            "audit": Leaf("ledger:audit_ledger", needs=EITHER),
        },
    ),
    "key": Branch(
        "The keys that sign.",
        {
            "list": Leaf("keys:list_keys", instead=KEYS),
            "rotate": Leaf("keys:rotate", instead=KEYS),
            "retire": Leaf("keys:retire", instead=KEYS),
            "mark-compromised": Leaf("keys:mark_compromised", instead=KEYS),
            "renew-proofs": Leaf("keys:renew", instead=KEYS),
            "passphrase": Leaf("keys:passphrase", instead=KEYS),
            "revoke": Leaf("keys:revoke", instead=KEYS),
        },
    ),
    "token": Branch(
        "Tokens for the service.",
        {
            "create": Leaf(
                "tokens:create_token", instead="An admin makes tokens there, or in the browser under /ui/tokens"
            ),
            "revoke": Leaf("tokens:revoke_token", instead="An admin ends it there, or in the browser under /ui/tokens"),
            "list": Leaf("tokens:list_tokens", needs=EITHER),
            "trail": Leaf("tokens:show_trail"),
        },
    ),
    "schedule": Branch(
        "Schedules: the same job once a period, for as long as the budgets last.",
        {
            "add": Leaf("data.schedules:add", needs=EITHER),
            "list": Leaf("data.schedules:list_schedules", needs=EITHER),
            "remove": Leaf("data.schedules:remove", needs=EITHER),
        },
    ),
    "grant": Branch(
        "Grants: who may do what, and to what.",
        {
            "add": Leaf("tokens:add_grant", needs=EITHER),
            "list": Leaf("tokens:list_grants", needs=EITHER),
            "revoke": Leaf("tokens:revoke_grant", needs=EITHER),
        },
    ),
}
PEOPLE: Mapping[str, Sequence[str]] = {  # who needs which
    "To begin": ("init", "login", "logout", "config"),
    "The data steward": ("dataset", "schema", "renew", "grant", "charge", "person"),
    "The data scientist": (
        "plan", "train", "tune", "evaluate", "profile", "query", "synthesize", "job", "schedule", "learner", "mcp",
    ),
    "Released models": ("model", "predict"),
    "The operator": ("serve", "worker", "backup", "restore", "migrate", "token", "key"),
    "The auditor": ("verify", "ledger", "auditor"),
}  # fmt: skip
OWNERS = "Owners and institutions"
TREE: Nodes = WithExtensions[Leaf | Branch](CORE, "commands", before="model")


class Root(LazyGroup):
    """Command group: all of TREE."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(TREE, **attributes)

    def panels(self, ctx: Any) -> Mapping[str, Sequence[str]]:
        """Return the commands by the person who needs them; what an extension brings to the last."""
        names = self.list_commands(ctx)
        others = [name for name in names if name not in CORE]
        return {**PEOPLE, **({OWNERS: others} if others else {})}


READS_FILES = (
    "dataset",
    "schema",
    "renew",
    "predict",
    "verify",
)  # of others, maybe: none takes more than half of the memory
app = typer.Typer(name="dpserve", cls=Root, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    json: Json = False,
    says_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train models under differential privacy, account for every release, and serve them with certificates.

    `dpserve` alone says what to do next.
    """
    if context.invoked_subcommand is None:
        return Leaf("next:show_version" if says_version else "next:show_next").function()(json)
    if json:
        raise typer.BadParameter("--json stands after the command")


def run(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit code. Errors are one line on stderr, and with --json their JSON on
    stdout.
    """
    as_json = "--json" in arguments
    try:
        result = get_command(app)(list(arguments), prog_name="dpserve", standalone_mode=False, obj=command)
        return result if isinstance(result, int) else 0
    except DpserveError as error:
        return _report_failure(as_json, error.to_json(), with_next_step(error), error.exit_code)
    except TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # a command without anything: its help is the answer
            note(message)
            return 2
        return _report_failure(as_json, _shape("usage", message), f"{message} (--help says more)", 2)
    except (Abort, KeyboardInterrupt):
        return _report_failure(as_json, _shape("interrupted", "interrupted"), "interrupted", 1)
    except MemoryError:
        too_much = TooMuch("memory: what was named takes more of it than there is")
        return _report_failure(as_json, too_much.to_json(), too_much.message, too_much.exit_code)
    except Exception as error:
        if os.environ.get("DPSERVE_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError) and (missing := without_extra(error)):
            return _report_failure(as_json, missing.to_json(), missing.message, missing.exit_code)
        # The message of an OSError names a file; that of any other unexpected error might hold a value from the rows.
        names_file = isinstance(error, OSError) and error.filename is not None
        problem = f"{error.filename}: {error.strerror}" if names_file else f"unexpected {type(error).__name__}"  # type: ignore[attr-defined]
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            problem = "disk: no room (No space left on device); make some, and ask again"
        return _report_failure(as_json, _shape("internal", problem), f"{problem}; DPSERVE_DEBUG=1 shows where", 1)


def _shape(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": {}}}


def _report_failure(as_json: bool, body: dict[str, Any], line: str, code: int) -> int:
    if as_json:
        print(json.dumps(body, indent=2, default=str))
    note(f"{paint('dpserve:', 'bad', sys.stderr)} {line}")
    return code


def command(arguments: str) -> None:
    """Run `dpserve ARGUMENTS` in a process that went on from another command, and end it."""
    sys.argv = ["dpserve", *arguments.split()]
    main()


def main() -> None:
    """Run the command line, and exit with its code.

    Where no other thread is left, what is done at an exit is done here, and taking the interpreter apart object by
    object, a tenth of most commands, is left to the system.
    """
    gc.set_threshold(GARBAGE)
    # pydantic would read what every installed package says of itself, in search of plugins: none has a say in a schema
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if sys.argv[1:] and sys.argv[1] in READS_FILES:
        from accountant.system.confined import bound_memory, memory_of_one  # which most commands do without

        bound_memory(memory_of_one())
    code = run(sys.argv[1:])
    if threading.active_count() == 1:
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:  # whoever read is gone: as Python does it
            sys.exit(code)
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
