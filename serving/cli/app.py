"""The `dpserve` command: its commands in one tree, and how errors become a line and an exit code.

Exit codes: 0 done; 2 usage or bad input; 3 refused by the budget, or for want of a grant; 4 verification failed;
5 the job failed after it had started; 1 anything else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.exceptions import Abort, TyperException
from typer.main import get_command

from accountant.errors import DpserveError
from serving.cli.hints import with_step
from serving.cli.terminal import Json, note, paint
from serving.cli.tree import Branch, LazyGroup, Leaf, Nodes

TREE: Nodes = {
    "init": Leaf("server:init", "Make a home: keys, a ledger, and one admin token, printed once on stderr."),
    "plan": Leaf("train:plan", "Price a job: what it would cost and what would be left."),
    "train": Leaf("train:train", "Train a model: reserve its price, fit, certify, put it among the served models."),
    "tune": Leaf("train:tune", "Tune privately: learn a random number of times with settings from a grid."),
    "evaluate": Leaf("models:evaluate", "Say what a model is worth: on private rows, at a price, or on rows of yours."),
    "profile": Leaf(
        "data.profile:profile",
        "Profile a dataset: noisy counts of every column in its public bins, and what follows from them.",
    ),
    "predict": Leaf("models:predict", "Predict every row of a file, in its order, with a verified model."),
    "verify": Leaf("certificates:verify", "Verify a model, its certificate and its place in the ledger."),
    "serve": Leaf("server:serve", "Serve the models, run queued jobs and audit the ledger in processes beside it."),
    "worker": Leaf("server:worker", "Run queued jobs until told to stop; a job that runs is finished first."),
    "auditor": Leaf("server:auditor", "Audit the ledger now, every so often, and when it was asked for at the server."),
    "config": Leaf("server:config", "Print every setting that is in force, and where it came from."),
    "dataset": Branch(
        "Register datasets, and see what is left of their budgets.",
        {
            "register": Leaf("datasets:register"),
            "budget": Leaf("datasets:change_budget"),
            "quota": Leaf("datasets:set_quota"),
            "list": Leaf("datasets:list_datasets"),
            "show": Leaf("datasets:show_dataset"),
        },
    ),
    "schema": Branch(
        "Schemas: what everybody may know before any row is read.",
        {
            "draft": Leaf("datasets:draft"),
            "check": Leaf("data.schema:check"),
            "refine": Leaf("data.refine:refine"),
            "sample": Leaf("data.schema:sample"),
        },
    ),
    "learner": Branch(
        "Learners: what can be trained, and what each takes.",
        {"list": Leaf("train:list_learners"), "show": Leaf("train:show_learner")},
    ),
    "job": Branch(
        "Jobs: what was asked for, how far it is, what became of it.",
        {
            "list": Leaf("jobs:list_jobs"),
            "show": Leaf("jobs:show_job"),
            "watch": Leaf("jobs:watch"),
            "cancel": Leaf("jobs:cancel"),
        },
    ),
    "campaign": Branch(
        "Campaigns: learn from owners who keep their rows, one random report of each.",
        {
            "population": Leaf("local.campaigns:found"),
            "open": Leaf("local.campaigns:open_campaign"),
            "next": Leaf("local.campaigns:end_turn"),
            "close": Leaf("local.campaigns:close"),
            "give-up": Leaf("local.campaigns:give_up"),
            "show": Leaf("local.campaigns:show_campaign"),
        },
    ),
    "aggregator": Branch(
        "One of two who add up what owners send in shares: make keys, answer a campaign once.",
        {
            "init": Leaf("local.aggregator:init"),
            "answer": Leaf("local.aggregator:answer"),
            "show": Leaf("local.aggregator:show_aggregator"),
        },
    ),
    "owner": Branch(
        "An owner's own side: answer a campaign once, see what was sent and what it cost.",
        {
            "answer": Leaf("local.owner:answer"),
            "show": Leaf("local.owner:show_owner"),
            "verify": Leaf("local.owner:verify_model"),
        },
    ),
    "model": Branch(
        "Released models and their certificates.",
        {
            "list": Leaf("models:list_models"),
            "show": Leaf("models:show_model"),
            "export": Leaf("models:export"),
            "explain": Leaf("explain:explain"),
            "edit": Leaf("edit:edit"),
            "promote": Leaf("placing:promote"),
            "retire": Leaf("placing:retire"),
            "restore": Leaf("placing:restore"),
        },
    ),
    "ledger": Branch(
        "The ledger: every release that was ever paid for.",
        {
            "show": Leaf("ledger:show_ledger"),
            "checkpoint": Leaf("ledger:checkpoint"),
            "proof": Leaf("ledger:proof"),
            "consistency": Leaf("ledger:consistency"),
            "export": Leaf("ledger:export_ledger"),
            "tiles": Leaf("ledger:tiles"),
            "witness": Leaf("ledger:witness"),
            "audit": Leaf("ledger:audit_ledger"),
        },
    ),
    "key": Branch(
        "The keys that sign.",
        {
            "list": Leaf("keys:list_keys"),
            "rotate": Leaf("keys:rotate"),
            "retire": Leaf("keys:retire"),
            "mark-compromised": Leaf("keys:mark_compromised"),
            "renew-proofs": Leaf("keys:renew"),
            "passphrase": Leaf("keys:passphrase"),
            "revoke": Leaf("keys:revoke"),
        },
    ),
    "token": Branch(
        "Tokens for the service.",
        {
            "create": Leaf("tokens:create_token"),
            "revoke": Leaf("tokens:revoke_token"),
            "list": Leaf("tokens:list_tokens"),
            "trail": Leaf("tokens:show_trail"),
        },
    ),
    "grant": Branch(
        "Grants: who may do what, and to what.",
        {
            "add": Leaf("tokens:add_grant"),
            "list": Leaf("tokens:list_grants"),
            "revoke": Leaf("tokens:revoke_grant"),
        },
    ),
}


class Root(LazyGroup):
    """All of TREE."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(TREE, **attributes)


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
    """One command; its exit code. Errors are one line on stderr, and with --json their JSON on stdout."""
    as_json = "--json" in arguments
    try:
        result = get_command(app)(list(arguments), prog_name="dpserve", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except DpserveError as error:
        return _failed(as_json, error.to_json(), with_step(error), error.exit_code)
    except TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # a command without anything: its help is the answer
            note(message)
            return 2
        return _failed(as_json, _shape("usage", message), f"{message} (--help says more)", 2)
    except (Abort, KeyboardInterrupt):
        return _failed(as_json, _shape("interrupted", "interrupted"), "interrupted", 1)
    except Exception as error:
        if os.environ.get("DPSERVE_DEBUG"):
            raise
        # The message of an OSError names a file; that of any other unexpected error might hold a value from the rows.
        named = isinstance(error, OSError) and error.filename is not None
        what = f"{error.filename}: {error.strerror}" if named else f"unexpected {type(error).__name__}"  # type: ignore[attr-defined]
        return _failed(as_json, _shape("internal", what), f"{what}; DPSERVE_DEBUG=1 shows where", 1)


def _shape(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": {}}}


def _failed(as_json: bool, body: dict[str, Any], line: str, code: int) -> int:
    if as_json:
        print(json.dumps(body, indent=2, default=str))
    note(f"{paint('dpserve:', 'bad', sys.stderr)} {line}")
    return code


def main() -> None:
    """The program: runs the command line and exits with its code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
