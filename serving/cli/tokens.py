"""Commands about who may do what: tokens, their limits and the trail of what they asked for; and grants."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any

import typer

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.access.token_end import end_token
from accountant.access.tokens import SCOPES, Limits, own_principal
from accountant.home import Home
from dpserve_verify.errors import InputError
from serving.cli.backend import backend, open_home
from serving.cli.backends.user import require_access, this_user
from serving.cli.complete import DATASETS
from serving.cli.terminal import After, Contains, Json, Limit, align_columns, note, note_more, show
from serving.operations import grants as rights
from serving.operations.grants import GrantAnswer, GrantRequest, TokenAnswer, full_name
from serving.process.tokens import new_narrow_token, new_token
from serving.process.watch.trail_lines import lines
from serving.wire.list_parts import Part
from training.requests import Reasoned

Name = Annotated[str, typer.Option(help="Whose.")]
Scopes = Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(SCOPES)}. Repeatable.")]
Dataset = Annotated[list[str] | None, typer.Option(help="Only on this dataset. Repeatable.", autocompletion=DATASETS)]
Family = Annotated[list[str] | None, typer.Option(help="Only on the datasets of this family. Repeatable.")]
ModelName = Annotated[list[str] | None, typer.Option("--model", help="Only on the model of this name. Repeatable.")]


def create_token(
    name: Annotated[str, typer.Option(help="Who gets it.")],
    scope: Scopes = None,
    principal: Annotated[
        str | None, typer.Option(help="Whom it acts for: it may do what they are granted. Itself when left out.")
    ] = None,
    dataset: Dataset = None,
    family: Family = None,
    model: ModelName = None,
    per_second: Annotated[int | None, typer.Option(help="At most so many requests in a second.")] = None,
    per_day: Annotated[int | None, typer.Option(help="At most so many requests in a day (UTC).")] = None,
    json: Json = False,
) -> None:
    """Make a token. It is printed once; the ledger keeps its hash, and its limits.

    Its scopes are on everything; on what --dataset, --family and --model name, where they are given.

    \b
    dpserve token create --scope predict --name shop
    dpserve token create --scope predict --name partner --model adult --per-second 20 --per-day 100000
    dpserve token create --name notebook --principal team-a
    """
    home, scopes, narrow = Home.open(), scope or [], bool(dataset or family or model)
    require_access(home, "admin")
    limits, added = Limits(per_second, per_day), list[Grant]()
    if narrow:
        wanted = _grants("", scopes, dataset, family, model)
        secret, token, added = new_narrow_token(home, name, wanted, limits, principal, this_user())
    else:
        secret, token = new_token(home, name, scopes, limits, principal)
    body = {"token": secret, **TokenAnswer.of_token(token).to_json()}
    body["grants"] = [GrantAnswer.of_grant(grant).to_json() for grant in added]
    show(json, body, secret)
    most = f", at most {_limits(token.limits.to_json())}" if token.limits else ""
    rights = ", ".join(token.scopes) or f"what {token.principal} is granted"
    note(f"Token of {name} for {rights}{most}: printed once, not kept. Servers know it at once.")
    if principal is None and token.principal != own_principal(name):
        note(f"The name was used before: this one is {token.principal}, and has nothing of what that one had.")


def _grants(
    principal: str,
    scopes: list[str],
    dataset: list[str] | None,
    family: list[str] | None,
    model: list[str] | None,
    expires: str | None = None,
) -> list[Grant]:
    """Make a grant for each scope on each thing named; on everything, where nothing is named."""
    if not scopes:
        raise InputError(f"--scope: must be one or more of {', '.join(SCOPES)}")
    resources = [("dataset", name) for name in dataset or []] + [("family", name) for name in family or []]
    resources += [("model", name) for name in model or []]
    until = None if expires is None else grants.time_of(expires)
    return [
        Grant(principal, scope, kind, name, expires=until)
        for scope in scopes
        for kind, name in resources or [(grants.EVERYTHING, "")]
    ]


def _limits(limits: Mapping[str, int | None]) -> str:
    return ", ".join(f"{most} {name.replace('_', ' ')}" for name, most in limits.items() if most is not None)


def revoke_token(name: Name, json: Json = False) -> None:
    """End a token, what it scheduled, and what was granted to it alone. Running servers refuse it within a second.

    \b
    dpserve token revoke --name shop
    """
    home = open_home("admin")
    ended = end_token(home.ledger, name)
    stops = {"grants": [*ended.grants], "schedules": [*ended.schedules], "jobs": [*ended.jobs]}
    body = {**TokenAnswer.of_token(ended.token).to_json(), "stops": stops}
    show(json, body, f"token of {name} revoked, entry {ended.token.revoked}")
    if ended.grants:
        numbers = ", ".join(map(str, ended.grants))
        note(f"Its grants end with it ({numbers}): they were {ended.token.principal}'s, and are nobody's from now on.")
    elif not ended.token.acts_for_itself:
        note(f"It acted for {ended.token.principal}, whose grants stay (dpserve grant list).")
    if ended.schedules:
        note(f"The schedules that it made end with it: {', '.join(ended.schedules)}.")
    if ended.jobs:
        jobs = ", ".join(f"job {job}" for job in ended.jobs)
        note(f"Asked for before by {ended.token.principal}, and go on: {jobs} (dpserve job cancel).")


def list_tokens(contains: Contains = "", limit: Limit = None, after: After = None, json: Json = False) -> None:
    """List the tokens there ever were.

    \b
    dpserve token list
    """
    listed = backend().ask(rights.list_tokens, part=Part(contains, after, limit))
    rows = [("NAME", "PRINCIPAL", "SCOPES", "LIMITS", "STATE")]
    for token in listed.tokens:
        state = "good" if token.revoked is None else "revoked"
        rows.append((token.name, token.principal, ",".join(token.scopes) or "-", _limits(token.limits), state))
    show(json, listed.to_json(), align_columns(rows))
    note_more(listed.next)


def add_grant(
    principal: Annotated[
        str, typer.Option(help="To whom: token:NAME or the token's NAME, cli:USER, or a name that tokens act for.")
    ],
    scope: Scopes = None,
    dataset: Dataset = None,
    family: Family = None,
    model: ModelName = None,
    expires: Annotated[str | None, typer.Option(help="2027-01-31, or to the second: 2027-01-31T12:00:00Z.")] = None,
    json: Json = False,
) -> None:
    """Grant scopes: on the datasets, families and models that are named, else on everything.

    \b
    dpserve grant add --principal team-a --scope train --dataset adult
    dpserve grant add --principal token:shop --scope predict --model adult --expires 2027-01-31
    """
    side = backend()
    principal = full_name(side.ask(rights.list_tokens, part=Part()).tokens, principal)
    wanted = _grants(principal, scope or [], dataset, family, model, expires)
    requests = [GrantRequest(each.principal, each.scope, each.on, each.expires) for each in wanted]
    added = [side.ask(rights.add_grant, body=request) for request in requests]
    lines = [f"entry {each.grant}: {each.principal} may {each.scope} on {_on(each.on)}" for each in added]
    show(json, {"grants": [each.to_json() for each in added]}, "\n".join(lines))


def _on(on: Any) -> str:
    return on if isinstance(on, str) else " ".join(*on.items())


def revoke_grant(
    grant: Annotated[int, typer.Argument(help="Its number: that of the entry that made it.", min=0)],
    reason: Annotated[str, typer.Option(help="Why. It stays in the ledger permanently.")],
    json: Json = False,
) -> None:
    """End a grant. Running servers follow within a second.

    \b
    dpserve grant revoke 17 --reason "left the team"
    """
    side = backend()
    stops = side.ask(rights.show_grant, grant=grant).stops
    ended = side.ask(rights.revoke_grant, grant=grant, body=Reasoned(reason))
    show(json, {**ended.to_json(), "stops": stops.to_json()}, f"grant {grant} revoked, entry {ended.revoked}")
    if stops.tokens:
        note(f"It gave {ended.scope} on {_on(ended.on)} to: {', '.join(stops.tokens)}.")
    if stops.still is not None:
        note(f"{ended.principal} may go on: grant {stops.still} covers all of it.")
    if stops.jobs:
        note(f"Asked for before, and go on: {', '.join(f'job {job}' for job in stops.jobs)} (dpserve job cancel).")


def list_grants(
    principal: Annotated[str | None, typer.Option(help="Only of this principal.")] = None,
    contains: Contains = "",
    limit: Limit = None,
    after: After = None,
    json: Json = False,
) -> None:
    """List the grants there ever were. What tokens were given themselves stands in `dpserve token list`.

    \b
    dpserve grant list
    """
    listed, time = (
        backend().ask(rights.list_grants, part=Part(contains, after, limit), principal=principal),
        grants.now(),
    )
    rows = [("GRANT", "PRINCIPAL", "SCOPE", "ON", "STATE")]
    for grant in listed.grants:
        ended = grant.revoked is not None or (grant.expires is not None and grant.expires <= time)
        over = "expired" if grant.revoked is None else f"revoked, entry {grant.revoked}"
        good = "good" if grant.expires is None else f"until {grant.expires}"
        rows.append((str(grant.grant), grant.principal, grant.scope, _on(grant.on), over if ended else good))
    show(json, listed.to_json(), align_columns(rows))
    note_more(listed.next)


def show_trail(
    name: Annotated[str | None, typer.Option(help="Only what this token asked for.")] = None,
    last: Annotated[int, typer.Option(help="So many requests, the newest.", min=1)] = 50,
    json: Json = False,
) -> None:
    """Show who asked for what: the newest requests, the newest last. The file is logs/access.jsonl of the home.

    \b
    dpserve token trail --name shop --last 20
    """
    requests = (line for line in lines(Home.open().path) if name is None or line.get("token") == name)
    newest = list(islice(requests, last))[::-1]
    rows = [("TIME", "TOKEN", "STATUS", "REQUEST", "ABOUT", "WHY")]
    for line in newest:
        cell = {field: "-" if value is None else value for field, value in line.items()}
        request, why = f"{cell['method']} {cell['route']}", f"{cell.get('code', '')} {cell.get('reason', '')}".rstrip()
        rows.append((cell["time"], cell["token"], cell["status"], request, cell["about"], why))
    show(json, {"requests": newest}, align_columns(rows))
