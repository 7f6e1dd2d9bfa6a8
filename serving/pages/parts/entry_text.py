"""An entry of the ledger in plain words, and the pages that it leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from accountant.ledger.families.families import EVERYBODY
from accountant.ledger.families.job_kinds import Contribution, Evaluation, Profile, kind_of
from dpserve_verify.entries.kinds import FORMS
from dpserve_verify.log.entry import Entry
from dpserve_verify.privacy.outside import Curve

Value = Mapping[str, Any]


@dataclass(frozen=True)
class EntryText:
    """An entry as a page shows it. `links`: (words, address). `text`: its exact bytes, which are ASCII."""

    entry: int
    time: str
    kind: str
    badge: str
    label: str
    words: str
    text: str
    links: tuple[tuple[str, str], ...]


def describe(entry: Entry) -> EntryText:
    """Return an entry in words, of an unknown kind too."""
    value = entry.value
    badge, label, words = _WORDS.get(value["type"], _UNKNOWN)
    text = entry.body.decode("ascii")
    return EntryText(
        entry.seq, value.get("time", ""), value["type"], badge, label, words(value), text, (*_links(entry),)
    )


def _links(entry: Entry) -> list[tuple[str, str]]:
    value, kind = entry.value, entry.value["type"]
    links = []
    job = entry.seq if kind == "reserved" else value.get("reservation")
    if job is not None:
        links.append((f"Job {job}", f"/ui/jobs/{job}"))
    if kind == "profiled":
        links.append(("Its profile", f"/ui/profiles/{job}"))
    if "dataset" in value:
        links.append((f"Dataset {value['dataset']}", f"/ui/datasets/{value['dataset']}"))
    is_of_model = "statement" in value or kind.startswith("model-")
    model = value.get("model") if kind == "reserved" else value.get("name") if is_of_model else None
    if model:  # a profile names none
        links.append((f"Model {model}", f"/ui/models/{model}"))
    if kind in FORMS and (certificate := FORMS[kind].certificate()):
        links.append((f"Entry {value[certificate]}", f"/ui/ledger/{value[certificate]}"))
    return links


def _describe_registered(value: Value) -> str:
    budget, unit = value["budget"], value["unit"]["name"]
    family = f" in a new family, {value['family_name']}" if "family_name" in value else ""
    cells = " Its numbers stand in fine cells, so that a job may find where to cut them." if "cells" in value else ""
    holdout = ""
    if "holdout" in value:
        share = f"{float(value['holdout']) * 100:g} %"
        holdout = f" About {share} of them are kept aside for evaluation, with a budget of the same size."
    apart = f", of which {budget['outside']} is set apart for releases made elsewhere" if "outside" in budget else ""
    return (
        f"Dataset {value['dataset']} was registered{family}. Everything that is ever released of these rows may cost "
        f"epsilon {budget['epsilon']} at delta {budget['delta']} in all{apart}. Protected is each {unit}, under "
        f"{value['relation']}."
        f"{holdout}{_grows(value)}{_targets(value)}{cells}{_query(value)}{_describe_refined(value)}"
    )


def _person(value: Value) -> str:
    budget = value["budget"]
    return (
        f"In dataset {value['dataset']}, each person, in however many blocks, has a total as well: epsilon "
        f"{budget['epsilon']} at delta {budget['delta']}, over all blocks that will ever come. Every job is charged to "
        "it too, and the rows of each person are bounded over all blocks that it reads."
    )


def _describe_appended(value: Value) -> str:
    period = value.get("period")
    days = "" if period is None else f" Every row is of {period['since']} to {period['until']}, by {period['column']}."
    new = value.get("new_rows")
    statement = "" if new is None else f" {new['by']} said that they stand nowhere else. Reason: {new['reason']}"
    return (
        f"{value['by']} appended block {value['block']} to dataset {value['dataset']}, with a budget of its own, of "
        f"the same size: protected is each unit in each block.{days}{statement}{_query(value)}"
    )


def _grows(value: Value) -> str:
    """Return a sentence on what each total is for, where blocks may be appended."""
    if value["relation"] == "replace-one" or value["unit"]["name"] == "owner":
        return ""
    whose = " A person's total over all blocks is an entry of its own." if value["unit"]["column"] is not None else ""
    return f" A block that is appended has a total of its own.{whose}"


def _describe_refined(value: Value) -> str:
    releases = [
        f"entry {line['entry']} ({line['part']} rows of {line['dataset']}, epsilon {line['epsilon']} at delta "
        f"{line['delta']})"
        for line in value.get("refined", ())
    ]
    return f" Its schema was refined from what was released of rows: {', '.join(releases)}." if releases else ""


def _query(value: Value) -> str:
    if "query" not in value:
        return ""
    query = value["query"]
    why = f" {query['by']} said why each is about one person alone: {query['reason']}" if "reason" in query else ""
    return f" Its rows were read by a query, of sha256 {query['sha256']}.{why}"


def _describe_charged(value: Value) -> str:
    cost, rows = Curve.read(value["curve"]).words, value.get("contributions")
    of = value["unit"] if rows is None else f"record, with at most {rows} of a person"
    blocks = f", blocks {value['blocks']}" if "blocks" in value else ""
    again = " The same was charged before, and is said to be another release." if "another" in value else ""
    document = f" What says so has the digest {value['document']}." if "document" in value else ""
    document += " What it was made from is charged with it." if len(value.get("releases", ())) > 1 else ""
    return (
        f"{value['by']} charged to dataset {value['dataset']}{blocks} what was released elsewhere, by "
        f"{value['mechanism']}: {cost} for one {of}. It stays spent.{document}{again}{_why(value)}"
    )


def _targets(value: Value) -> str:
    return f" A job predicts one of: {', '.join(value['targets'])}." if "targets" in value else ""


def _budget_changed(value: Value) -> str:
    epsilon = value["budget"]["epsilon"]
    largest = "" if value.get("largest", epsilon) == epsilon else f" The largest ever in force was {value['largest']}."
    return f"{value['by']} set a family's total to epsilon {epsilon}; what was spent stays spent.{largest}{_why(value)}"


def _quota_set(value: Value) -> str:
    who = "everybody without a quota of their own" if value["analyst"] == EVERYBODY else value["analyst"]
    return f"{value['by']} let {who} use at most {float(value['share']) * 100:g} % of a family's budget.{_why(value)}"


def _describe_rows_compared(value: Value) -> str:
    purpose = {
        "register": f"a file was to be registered as {value['dataset']}",
        "append": f"a file was to be appended to {value['dataset']}",
        "evaluate": f"a model of {value['dataset']} was to be evaluated on a file",
    }[value["door"]]
    outcome = (
        f"it was refused, for what stands in {' and '.join(value['concerns'])}"
        if value["concerns"]
        else ("nothing was found, and nothing was registered")
    )
    return (
        f"Asked by {value['by']}, {purpose}: its rows were compared with those of registered datasets, and {outcome}. "
        "How much was found is told to nobody."
    )


def _describe_reserved(value: Value) -> str:
    first, last = value.get("window", (None, None))
    blocks = "" if first is None else f"block {first} of " if first == last else f"blocks {first} to {last} of "
    rows = f"{'what is kept aside of ' if 'part' in value else ''}{blocks}dataset {value['dataset']}"
    claim = f"epsilon {value['claim']['epsilon']} at delta {value['delta']}"
    match kind_of(value):
        case Evaluation(evaluates, against):
            comparison = "" if against is None else f" beside the one of entry {against}"
            request = f"what model {value['model']}, of entry {evaluates}, is worth{comparison} on {rows}: {claim}."
        case Contribution():
            request = f"for sums over {rows} by the campaign {value['parameters']['campaign']} elsewhere: {claim}."
        case Profile():
            request = f"how the rows of {rows} are spread over its public bins: {claim}."
        case _:
            answers = _count(sum(run["count"] for run in value["plan"]), "noisy answer", "noisy answers")
            about = f" that predicts {value['target']}" if "target" in value else ""
            about += ", which shall be champion at once" if "promote" in value else ""
            model = f"a model named {value['model']}{about}"
            request = f"for the learner {value['learner']} on {rows}, for {model}: {claim} for {answers}."
    if "made_from" in value:
        request += f" Behind it are the releases of entries {', '.join(map(str, value['made_from']))}."
    if "schedule" in value:
        request += f" It is of the schedule of entry {value['schedule']['entry']}."
    request += " The price was set aside."
    if "whole" in value:
        request += " The job takes the whole total: nothing is admitted beside it or after it."
    return f"{value['by']} asked {request}"


def _describe_token_created(value: Value) -> str:
    limits = " and ".join(
        f"{most:,} a {period.removeprefix('per_')}" for period, most in value.get("limits", {}).items()
    )
    most = f", at most {limits}" if limits else ""
    scopes = " and ".join(value["scopes"]) or "what its principal is granted"
    whom = value.get("principal", f"token:{value['name']}")
    acts = "" if whom == f"token:{value['name']}" else f" It acts for {whom}."
    if whom.startswith(f"token:{value['name']}#"):
        acts = f" It acts for {whom}: its name was used before, and it has nothing of what that one had."
    return f"A token named {value['name']} was made, for {scopes}{most}.{acts} Only its hash is known here."


def _describe_schedule(value: Value) -> str:
    how = "at the command line" if value["token"] is None else f"by the token of entry {value['token']}"
    ends = "" if value["token"] is None else " It ends with that token."
    rows = value.get("rows", {})
    ends += f" The rows of {rows['data']} are appended before it." if rows else ""
    ends += (
        f" The same people get a budget of their own in each block: {why}" if (why := rows.get("each_block")) else ""
    )
    return (
        f"{value['by']} made the schedule {value['name']}, {how}: once each {value['every']}, a job on dataset "
        f"{value['asked']['dataset']} at epsilon {value['asked']['epsilon']}.{ends} It spends nothing by itself."
    )


def _grant_added(value: Value) -> str:
    on = value["on"] if isinstance(value["on"], str) else " ".join(*value["on"].items())
    until = f", until {value['expires']}" if value["expires"] else ""
    return f"{value['by']} granted {value['principal']} the scope {value['scope']} on {on}{until}."


def _why(value: Value) -> str:
    return f" Reason: {value['reason']}"


def _signs(value: Value) -> str:
    return "certificates" if value["role"] == "issuer" else "the ledger"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}

# Kind -> (badge of the pages, what it is called there, what an entry says).
_WORDS: dict[str, tuple[str, str, Callable[[Value], str]]] = {
    "genesis": (
        "run",
        "ledger begun",
        lambda value: (
            f"The ledger {value['origin']} begins here, with one key that signs certificates and one that signs the "
            "ledger."
        ),
    ),
    "dataset-registered": ("run", "dataset registered", _describe_registered),
    "person-total": ("run", "total for one person", _person),
    "dataset-joined": (
        "run",
        "dataset joined",
        lambda value: (
            f"Dataset {value['dataset']} was registered. It holds people of datasets that were registered before it, "
            f"so it shares their budgets: of {_count(len(value['families']), 'family', 'families')}."
            f"{_targets(value)}{_query(value)}{_describe_refined(value)}"
        ),
    ),
    "dataset-appended": ("run", "block appended", _describe_appended),
    "blocks-dropped": (
        "off",
        "rows deleted",
        lambda value: (
            f"{value['by']} deleted the rows of dataset {value['dataset']} up to block {value['upto']}: no job reads "
            f"them any more, and what was spent on them stays spent.{_why(value)}"
        ),
    ),
    "budget-changed": ("warn", "budget changed", _budget_changed),
    "quota-set": ("warn", "quota set", _quota_set),
    "reserved": ("wait", "budget reserved", _describe_reserved),
    "started": (
        "run",
        "job started",
        lambda value: f"Job {value['reservation']} began. From here on its price stays spent, whatever becomes of it.",
    ),
    "committed": (
        "good",
        "job finished",
        lambda value: (
            f"Job {value['reservation']} released its numbers. Their digest stands here, so they cannot be exchanged."
        ),
    ),
    "resumed": (
        "run",
        "job goes on",
        lambda value: (
            f"Job {value['reservation']} goes on in another process, after the one that ran it ended, for the "
            f"{ORDINALS[value['times']]} time. What was drawn before is not drawn again; it costs nothing more."
        ),
    ),
    "burned": (
        "bad",
        "job failed",
        lambda value: (
            f"Job {value['reservation']} came to nothing after it had begun ({value['reason']}). Its price stays spent."
        ),
    ),
    "released": (
        "off",
        "budget given back",
        lambda value: (
            f"Job {value['reservation']} was given up before it began. No row was read, and its price was given back."
        ),
    ),
    "issued": (
        "good",
        "certificate issued",
        lambda value: (
            f"The certificate of model {value['name']}, made by job {value['reservation']}, was bound to the model's "
            "bytes."
        ),
    ),
    "derived": (
        "good",
        "model edited",
        lambda value: (
            f"{value['by']} edited model {value['name']} without its data, which costs no privacy. It takes the place "
            f"of the one certified by entry {value['base']}.{_why(value)}"
        ),
    ),
    "evaluated": (
        "good",
        "model evaluated",
        lambda value: (
            f"What model {value['name']} is worth was measured by job {value['reservation']}. The signed statement is "
            "bound here to the model's bytes."
        ),
    ),
    "attack-started": ("run", "attack begun", lambda value: f"The attack registered with job {value['reservation']}."),
    "attacked": ("good", "attack stated", lambda value: f"What the attack on model {value['name']} shows was signed."),
    "profiled": (
        "good",
        "dataset profiled",
        lambda value: (
            f"How the rows of dataset {value['dataset']} are spread was counted by job {value['reservation']}, with "
            "noise. The signed statement is bound here."
        ),
    ),
    "revoked": (
        "bad",
        "certificate revoked",
        lambda value: f"{value['by']} revoked the certificate of entry {value['issued']}.{_why(value)}",
    ),
    "model-promoted": (
        "run",
        "model promoted",
        lambda value: (
            f"{value['by']} made version {value['version']} of model {value['name']} its champion"
            + (f", in place of version {value['replaces']}" if "replaces" in value else "")
            + f".{_why(value)}"
            + (f" The statement of entry {value['worth']} speaks for it." if "worth" in value else "")
        ),
    ),
    "model-retired": (
        "off",
        "model retired",
        lambda value: (
            f"{value['by']} took version {value['version']} of model {value['name']} out of service.{_why(value)}"
        ),
    ),
    "model-restored": (
        "run",
        "model restored",
        lambda value: (
            f"{value['by']} put version {value['version']} of model {value['name']} back into service.{_why(value)}"
        ),
    ),
    "token-created": ("run", "token made", _describe_token_created),
    "token-revoked": (
        "bad",
        "token revoked",
        lambda value: f"The token {value['name']} was ended permanently, with its schedules.",
    ),
    "grant-added": ("run", "grant made", _grant_added),
    "grant-revoked": (
        "bad",
        "grant revoked",
        lambda value: f"{value['by']} revoked the grant of entry {value['grant']}.{_why(value)}",
    ),
    "schedule-added": ("run", "schedule made", _describe_schedule),
    "schedule-stopped": (
        "warn",
        "schedule stopped",
        lambda value: f"The schedule of entry {value['schedule']} submits no more jobs: {value['reason']}",
    ),
    "schedule-removed": (
        "off",
        "schedule removed",
        lambda value: f"{value['by']} removed the schedule of entry {value['schedule']}. What it asked for stays.",
    ),
    "key-added": (
        "run",
        "key added",
        lambda value: f"{value['by']} added a key that signs {_signs(value)}.{_why(value)}",
    ),
    "key-retired": (
        "off",
        "key retired",
        lambda value: (
            f"{value['by']} retired a key that signed {_signs(value)}; what it signed before stands.{_why(value)}"
        ),
    ),
    "key-compromised": (
        "bad",
        "key compromised",
        lambda value: (
            f"{value['by']} declared a key lost that signed {_signs(value)}: it speaks for nothing after entry "
            f"{value['after']}.{_why(value)}"
        ),
    ),
    **{
        f"model-{act}": (
            tone,
            f"model {act}",
            lambda value: (
                f"{value['by']} decided what lists show: {' '.join(value['type'].split('-'))} {value['name']}. Nothing "
                f"else changes by it.{_why(value)}"
            ),
        )
        for act, tone in (("archived", "off"), ("unarchived", "run"))
    },
    "dataset-archived": (
        "off",
        "dataset retired",
        lambda value: (
            f"{value['by']} retired the dataset {value['dataset']}: it takes no further job, schedule or block. What "
            f"was spent on it stays spent.{_why(value)}"
        ),
    ),
    "dataset-unarchived": (
        "run",
        "dataset restored",
        lambda value: f"{value['by']} took the dataset {value['dataset']} up again.{_why(value)}",
    ),
    "dataset-withdrawn": (
        "off",
        "registration withdrawn",
        lambda value: (
            f"{value['by']} withdrew the registration of {value['dataset']} by entry {value['registered']}. Nothing "
            f"was spent on it: its name and its rows may come again, with a total of their own.{_why(value)}"
        ),
    ),
    "charged": ("warn", "charged from elsewhere", _describe_charged),
    "learner-admitted": (
        "run",
        "learner admitted",
        lambda value: (
            f"{value['by']} admitted {value['name']} by {value['author']}, sha256 {value['digest']}, to run on "
            f"{', '.join(value.get('datasets', ['every dataset']))}."
            f"{f' It reads rows; that it keeps {v} is the word of the same.' if (v := value.get('vouched')) else ''}"
            f"{' Declared are ' * bool(d := value.get('declared', []))}{', '.join(d)}{'.' * bool(d)}{_why(value)}"
        ),
    ),
    "learner-removed": ("off", "learner removed", lambda value: f"{value['by']} removed {value['name']}.{_why(value)}"),
    "rows-compared": ("warn", "rows compared", _describe_rows_compared),
    "campaign-opened": (
        "run",
        "campaign opened",
        lambda value: (
            f"Owners were asked for one report each, for job {value['reservation']}. What all of them were asked has "
            f"this digest: {value['definition']}."
        ),
    ),
    "campaign-closed": (
        "good",
        "campaign closed",
        lambda value: (
            f"The campaign of job {value['reservation']} takes no more reports: "
            f"{_count(value['reports'], 'owner', 'owners')} had answered."
        ),
    ),
    "campaign-round": (
        "run",
        "turn ended",
        lambda value: (
            f"Turn {value['round']} of the campaign of job {value['reservation']} is over: "
            f"{_count(value['reports'], 'owner', 'owners')} answered. What was learnt so far, by which the next owners "
            f"go, has this digest: {value['ensemble']}."
        ),
    ),
    "campaign-answered": (
        "run",
        "aggregator answered",
        lambda value: (
            f"Aggregator {value['aggregator']} has an answer to the campaign of job {value['reservation']}, a sum "
            f"with its noise, and sends no other. The answer has this digest: {value['answer']}."
        ),
    ),
}
_UNKNOWN = ("off", "of another kind", lambda value: "This version of dpserve does not know entries of this kind.")
LABELS = {kind: _WORDS[kind][:2] for kind in FORMS}
"""Every kind of entry: (badge of the pages, what it is called there). A kind without words raises KeyError here."""
