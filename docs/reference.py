"""The pages under reference/ are made from the code, and cannot go stale; what changed is the project's CHANGELOG.md.

A hook of MkDocs when the site is built; `python docs/reference.py FOLDER` writes them for a wheel, and a server that
runs from its sources asks `made` for them.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import typer.main
import yaml

from accountant.access.tokens import SCOPES
from accountant.audit.audit import audit_home
from accountant.home import Home
from accountant.ledger.job_counts import JobFigures
from accountant.ledger.ledger import Ledger
from dpserve import Client
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.errors import DpserveError
from local.campaign.asking import Refused
from serving.app import DOORS
from serving.cli.app import app
from serving.http.routes import Door
from serving.pages.all import PAGES as DASHBOARD
from serving.process.config import settings
from serving.process.watch import metrics
from serving.process.watch.metrics import (
    AuditGauges,
    LedgerGauges,
    ProcessGauges,
    ReachedGauges,
    ServingGauges,
    WorthGauges,
)
from serving.process.watch.upkeep import MachineGauges
from serving.rest.openapi import MEANINGS, examples, openapi
from serving.wire import errors as doors
from training.learners import LEARNERS
from training.learners.base.private_learner import PrivateClassifier, PrivateRegressor
from training.notebook import CHECKS, CHECKS_OF_MANY, CHECKS_OF_NUMBERS
from training.notebook.notebook_budget import Account
from training.notebook.without_noise import NotPrivate
from training.session.session import Session

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
GRAFANA = ROOT / "serving" / "grafana"
WIDE = "---\nhide: [toc]\n---\n\n"  # a page that is one table


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds every page that is made."""
    from mkdocs.structure.files import File  # is not there where a server runs

    for name in (*PAGES, CHANGES):
        files.append(File.generated(config, f"{name}.md", content=made(name)))
    return files


def made(name: str) -> str:
    """The Markdown of `reference/...`, one of PAGES, or of the changelog."""
    if name == CHANGES:
        return (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "](")
    return PAGES[name]()


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines) + "\n\n"


def _cell(value: Any) -> str:
    return re.sub(r"\s+", " ", str(value)).replace("|", "\\|").strip()


def prose(text: str | None) -> str:
    """A docstring as Markdown; lines of commands become a block."""
    parts = inspect.cleandoc(text or "").replace("\b", "").split("\n\n")
    return "\n\n".join(_block(part) for part in parts if part.strip()) + "\n\n"


def _block(part: str) -> str:
    command = re.match(r"\n*(\w+=\S+ )?dpserve ", part)
    return f"```\n{part.strip()}\n```" if command else part.strip()


# ---- commands --------------------------------------------------------------------------------------------------------


def commands() -> str:
    found = _commands(typer.main.get_command(app), "dpserve")
    intro = "Every command. `--json` prints one JSON document on stdout; progress and notes go to stderr.\n\n"
    return f"# Commands\n\n{intro}" + "".join(found)


def _commands(command: Any, name: str) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield f"## {name}\n\n{prose(command.help)}{_parameters(command.params)}"
        return
    for key, below in inner.items():
        yield from _commands(below, f"{name} {key}")


def _parameters(found: list[Any]) -> str:
    rows = [(_names(each), _default(each), escape(getattr(each, "help", "") or "", quote=False)) for each in found]
    return table(("option", "default", "meaning"), rows) if rows else ""


def _names(parameter: Any) -> str:
    option = parameter.param_type_name == "option"
    shown = [*parameter.opts, *parameter.secondary_opts] if option else [parameter.name.upper()]
    variable = f" (`{parameter.envvar}`)" if getattr(parameter, "envvar", None) else ""
    return ", ".join(f"`{name}`" for name in shown) + variable


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    plain = isinstance(parameter.default, str | int | float) and not isinstance(parameter.default, bool)
    return f"`{parameter.default}`" if plain and parameter.default != "" else ""


# ---- REST ------------------------------------------------------------------------------------------------------------


def rest() -> str:
    spec = openapi(DOORS)
    parts = [
        _route(path, method, found, spec) for path, item in spec["paths"].items() for method, found in item.items()
    ]
    intro = (
        "Every door, from the description that the server gives at `/docs.json`. Every error has one shape: "
        '`{"error": {"code", "message", "details"}}`. The examples are what a real '
        "server was asked, and answered; long texts and lists are cut.\n\n"
    )
    meanings = table(("status", "meaning"), MEANINGS.items())
    return f"# REST\n\n{intro}{meanings}" + "".join(parts)


def _route(path: str, method: str, found: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    text = f"## {method.upper()} {path}\n\n{found['summary']}. {found['description']}\n\n"
    queries = [each for each in found["parameters"] if each["in"] == "query"]
    if queries:
        text += table(("query", "meaning"), [(f"`{each['name']}`", each.get("description", "")) for each in queries])
    text += _bodies("Takes", found.get("requestBody", {}).get("content", {}), spec)
    for status, answer in found["responses"].items():
        if status.startswith("2"):
            text += _bodies(f"Answers {status},", answer.get("content", {}), spec)
    return text + _example(f"{method.upper()} {path}")


def _bodies(says: str, content: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Each media type with its form; those of one form together."""
    forms: dict[str, list[str]] = {}
    for media, body in content.items():
        forms.setdefault(_fields(body.get("schema", {}), spec), []).append(f"`{media}`")
    return "".join(f"{says} {', '.join(media)}:\n\n{form}" for form, media in forms.items())


def _example(door: str) -> str:
    """What was asked of a real server and what it answered."""
    found = examples().get(door)
    if found is None:
        return ""
    said = f"```http\n{door.partition(' ')[0]} {found['path']}\n```\n\n"
    if "request" in found:
        said = f"```http\n{door.partition(' ')[0]} {found['path']}\nContent-Type: {found['request']['type']}\n```\n\n"
        said += _shown(found["request"]["body"])
    return f"An example:\n\n{said}{_shown(found['response']['body'])}"


def _shown(body: Any) -> str:
    """In a block, as it came, or as JSON."""
    text = body if isinstance(body, str) else json.dumps(body, indent=1, ensure_ascii=False)
    return f"```{'' if isinstance(body, str) else 'json'}\n{text}\n```\n\n"


def _fields(schema: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    schema = _resolved(schema, spec)
    if schema.get("format") == "binary" and "description" not in schema:
        return "Bytes.\n\n"
    required = schema.get("required", ())
    rows = [
        (
            f"`{name}`" + ("" if name in required else " (optional)"),
            _kind(_resolved(each, spec)),
            each.get("description", ""),
        )
        for name, each in schema.get("properties", {}).items()
    ]
    return table(("field", "kind", "meaning"), rows) if rows else f"{schema.get('description') or _kind(schema)}\n\n"


def _resolved(schema: Mapping[str, Any], spec: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref", "")
    return spec["components"]["schemas"][name.rpartition("/")[2]] if name else schema


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return json.dumps(schema["const"])
    either = schema.get("oneOf", schema.get("anyOf", []))
    kinds = schema.get("type") or [each.get("type") or _kind(each) or "any" for each in either]
    return " or ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)


# ---- learners, errors, settings, metrics -----------------------------------------------------------------------------


def learners() -> str:
    parts = [_learner(name, kind) for name, kind in LEARNERS.items()]
    intro = (
        "What each learner takes, from the code. On the platform: `--set name=value`, and `parameters` of a job. "
        "Every parameter is public. [How each learner works](../learners.md).\n\n"
    )
    return f"# Learners\n\n{intro}" + "".join(parts)


def _learner(name: str, kind: type[Any]) -> str:
    says = max((each.__doc__ or "" for each in kind.__mro__ if each.__module__ == kind.__module__), key=len)
    shared = ("schema", "epsilon", "delta", "relation", "account")
    given = inspect.signature(kind.__init__).parameters.values()
    rows = [
        (f"`{each.name}`", f"`{each.default!r}`", f"`{str(each.annotation).replace(' | ', ' or ')}`")
        for each in given
        if each.name not in ("self", *shared)
    ]
    parameters = table(("parameter", "default", "kind"), rows) if rows else ""
    return f"## {name}\n\n`from dpserve.learners import {kind.__name__}`\n\n{prose(says)}{parameters}"


OUTSIDE = (  # of the tree: what the edges say by themselves
    ("http_error", "", "4xx", "The web server refused the request before any door saw it.", "send it as HTTP has it"),
    ("interrupted", 1, "", "The command was ended at a question (Ctrl-C).", "`dpserve job list` says what goes on"),
    ("method_not_allowed", "", 405, "The door at this address takes other methods.", "`Allow` names them"),
    ("not_found", "", 404, "There is no door at this address.", "`GET /docs.json` describes all of them"),
    (
        "redirected",
        "",
        "3xx",
        "The server sent the client elsewhere. It does not follow, or the token would go there too.",
        "give the address that it names",
    ),
    (
        "usage",
        2,
        "",
        "The command line has a command or an option that there is not, or lacks one that it needs.",
        "`--help` after the command says what it takes",
    ),
)
PYTHON = (Refused, NotPrivate)  # kinds that no server answers with


def errors() -> str:
    coded = [each for each in {*_tree(DpserveError)} if "code" in each.__dict__]
    status = {each: "" if each in PYTHON else doors.status_of(each("")) for each in coded}
    rows = [(each.code, each.exit_code, status[each], _first(each), each.remedy) for each in coded]
    shown = sorted((f"`{code}`", *rest) for code, *rest in (*rows, *OUTSIDE))
    intro = (
        "Every code that `error.code` can hold, the command line's exit code, the status over REST, what it means and "
        "what to do. `tests/docs/test_errors_page.py` has for each of them something that is answered with it.\n\n"
    )
    return f"{WIDE}# Errors\n\n{intro}{table(('code', 'exit', 'status', 'meaning', 'what to do'), shown)}"


def _tree(kind: type[DpserveError]) -> Iterator[type[DpserveError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


def _first(kind: type) -> str:
    own = kind.__dict__.get("__doc__") or ""
    return inspect.cleandoc(own).split("\n\n")[0]


SETTINGS = {  # variable -> default as a person would say it ("": as `dpserve config` does), and what it is
    "DPSERVE_HOME": ("`~/.local/share/dpserve`", "The home: keys, ledger, rows, models."),
    "DPSERVE_LOCAL": ("the home", "What is this machine's own: sockets, logs, the trail."),
    "DPSERVE_LEDGER_URL": ("SQLite, `ledger.db` in the home", "The ledger's database; of PostgreSQL without password."),
    "DPSERVE_ENGINE": ("", "Who asks the rows: `local`, or `dask://HOST:PORT` and `tls://HOST:PORT` for a cluster."),
    "DPSERVE_RESUME": ("", "`1`: a job whose process was killed goes on in place of being burned."),
    "DPSERVE_ISSUER_KEY": ("a file of the home", "Where the issuer's key is kept: a signer URI."),
    "DPSERVE_SCHEDULES_OF_ONE": ("", "How many schedules one principal may have."),
    "DPSERVE_WITNESS_POLICY": ("", "The file that says whose cosignatures count, and who is asked for them."),
    "DPSERVE_HOST": ("", "The address that the server listens on."),
    "DPSERVE_PORT": ("", "The port that the server listens on."),
    "DPSERVE_GRPC": ("none", "The port of the open inference protocol over gRPC."),
    "DPSERVE_WORKERS": ("one for each core, as far as memory goes", "How many processes serve."),
    "DPSERVE_TLS_CERT": ("", "The certificate chain, PEM: serve HTTPS."),
    "DPSERVE_TLS_KEY": ("", "The private key of the certificate, PEM."),
    "DPSERVE_LOG_FORMAT": ("", "`text`, or `json` for one object a line."),
    "DPSERVE_AUDIT_SECONDS": ("", "Seconds between audits of the ledger; `0`: only when asked."),
    "DPSERVE_DRAIN_SECONDS": ("", "Seconds for which a server that is told to stop says not ready first."),
    "DPSERVE_JOB_WORKERS": ("", "How many processes beside the server run queued jobs; `0`: none."),
    "DPSERVE_WORKER": ("", "Whether `bentoml serve` starts a worker that runs queued jobs; `0`: none."),
    "DPSERVE_MODELS_IN_MEMORY": ("", "How many models each serving process keeps open."),
    "DPSERVE_WITHOUT_LEDGER_SECONDS": (
        "",
        "For how long predictions go on while the ledger cannot be looked at; a revocation comes late by at most that.",
    ),
    "DPSERVE_METRICS_VERSIONS": ("", "Which versions have metrics of their own: `champions`, or `all`."),
    "DPSERVE_TRAIL_BYTES": ("", "Size at which the trail begins a new file."),
    "DPSERVE_TRAIL_FILES": ("", "How many full files of the trail are kept."),
    "DPSERVE_UPLOAD_BYTES": ("", "The largest file that a steward may bring in a browser; `0`: none."),
    "DPSERVE_SSO": ("none", "Who vouches for people: [single sign-on](sso.md)."),
    "DPSERVE_DATA_FOLDERS": ("none", "Folders on the server from which a steward may register in a browser."),
    "OTEL_TRACES_EXPORTER": ("`otlp` where there is an endpoint", "`otlp` or `none`: OpenTelemetry's own variable."),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("", "The collector; `/v1/traces` is added."),
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ("", "The collector's address for traces, taken as it is."),
    "DPSERVE_KEY_PASSPHRASE": ("", "The passphrase of the private keys; shown nowhere."),
}
OTHERS = {  # that no server has, and `dpserve config` does not list
    "DPSERVE_URL": "The server that commands and the Python client ask in place of a home.",
    "DPSERVE_TOKEN": "The token for it.",
    "DPSERVE_CA": "Certificate authorities to trust for it, PEM, in place of the system's.",
    "DPSERVE_PLAIN_HTTP": "`1`: ask a server beyond this machine without TLS.",
    "DPSERVE_DEBUG": "`1`: show where an unexpected error came from.",
    "DPSERVE_NEW_KEY_PASSPHRASE": "The new passphrase, for `dpserve key passphrase`.",
    "DPSERVE_HSM_PIN": "The PIN of the token that holds the issuer's key.",
    "DPSERVE_INVITATION": "An owner's invitation, for `dpserve owner answer`.",
    "DPSERVE_AGGREGATOR_PASSPHRASE": "The passphrase of an aggregator's private keys, which `init` then encrypts.",
    "DPSERVE_AGGREGATOR_TOKEN": "An aggregator's token, for `dpserve aggregator answer`.",
    "NO_COLOR": "Set: no colours. `FORCE_COLOR` puts them anywhere.",
    "XDG_CONFIG_HOME": "Where `dpserve login` keeps the address and the token; `~/.config` when not set.",
}


def configuration() -> str:
    rows = []
    for each in settings.all_settings({}):
        default, means = SETTINGS[each.name]  # a setting without words has no page
        rows.append((f"`{each.name}`", default or (f"`{each.value}`" if each.value else ""), means))
    intro = (
        "Each is a variable of the environment; a flag of `dpserve serve` goes before its variable. `dpserve config` "
        "prints what is in force, and where it came from. [Running a server](../operating.md), "
        "[keys](home.md#keys), [monitoring](../monitoring.md) and "
        "[clusters](sources.md#rows-on-several-hosts) say more.\n\n"
    )
    others = table(("variable", "meaning"), [(f"`{name}`", means) for name, means in OTHERS.items()])
    served = table(("variable", "default", "meaning"), rows)
    return f"{WIDE}# Settings\n\n{intro}{served}## Of commands and clients\n\n{others}"


def figures() -> str:
    rows = sorted((f"`{name}`", kind, ", ".join(labels), says) for name, kind, labels, says in _figures())
    intro = "Every metric at `/metrics`. None depends on the rows, and every label comes from a bounded set.\n\n"
    return f"{WIDE}# Metrics\n\n{intro}{table(('metric', 'kind', 'labels', 'meaning'), rows)}"


def _figures() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Those counted, and those that are read from a home: an empty one has all of them."""
    for metric in metrics.COUNTED:
        end = "_total" if metric._type == "counter" else ""
        yield f"{metric._name}{end}", metric._type, metric._labelnames, metric._documentation
    with TemporaryDirectory() as folder:
        home = Home.init({"DPSERVE_HOME": f"{folder}/home"})
        for collector in (
            ReachedGauges(home, (LedgerGauges(home, JobFigures()), WorthGauges(home, []))),
            AuditGauges(home.path),
            ServingGauges(0, 0, {}),
            MachineGauges(home.path, 0),
            ProcessGauges(0),
        ):
            for family in collector.collect():
                end = "_total" if family.type == "counter" else ""
                yield f"{family.name}{end}", family.type, getattr(family, "_labelnames", ()), family.documentation


def alerts() -> str:
    """Return a section for each alert: when it fires, what to do, and what was played that made it fire."""
    rules, played = (yaml.safe_load((GRAFANA / name).read_text("utf-8")) for name in ("alerts.yml", "alerts_test.yml"))
    real = {path: path.read_text("utf-8") for path in sorted((ROOT / "tests" / "serving").rglob("test_*.py"))}
    intro = (
        "Made of `serving/grafana/alerts.yml`, the rules themselves; [monitoring](../monitoring.md#alerts) says how "
        "somebody hears of them. What was played: a row of values in `serving/grafana/alerts_test.yml`, or a cause on "
        "a real server, whose `/metrics` is then judged by the rules on the labels that a cluster gives.\n\n"
    )
    return f"# Alerts\n\n{intro}" + "".join(_alert(rule, played["tests"], real) for rule in rules["groups"][0]["rules"])


def _alert(rule: dict[str, Any], played: list[dict[str, Any]], real: dict[Path, str]) -> str:
    name, says = rule["alert"], rule["annotations"]
    causes = [
        each["name"]
        for each in played
        if any(case["alertname"] == name and case["exp_alerts"] for case in each["alert_rule_test"])
    ]
    fires = re.compile(rf'(require_alerts|firing\().*"{name}"|"{name}" in .*firing\(')
    causes += [f"`{path.relative_to(ROOT)}`" for path, text in real.items() if fires.search(text)]
    shown = re.sub(r"{{ \$labels\.(\w+)[^}]*}}", r"*\1*", re.sub(r"{{ \$value[^}]*}}", "*n*", says["summary"]))
    facts = (("says", shown), ("severity", rule["labels"]["severity"]), ("holds for", rule.get("for", "–")))
    rows = [*facts, ("when", f"`{' '.join(rule['expr'].split())}`"), ("played", "; ".join(causes))]
    return f"## {name}\n\n{says['description']}\n\n{table(('', ''), rows)}"


def access() -> str:
    """Return one row for each door: what each scope reaches there."""
    intro = (
        "Who may do what: [access](../access.md). **granted**: what a grant covers, and nothing else. **own**: what "
        "its principal asked for. **on everything**: no grant on a part is enough. **all**: `admin`. –: refused.\n\n"
    )
    every = [door for door in (*DOORS, *DASHBOARD) if door.scopes]
    rows = [(f"`{door.method} {door.path}`", *(_reach(door, scope) for scope in SCOPES)) for door in every]
    return f"{WIDE}# Who reaches what\n\n{intro}{table(('door', *SCOPES), rows)}"


def _reach(door: Door, scope: str) -> str:
    reach = door.reach(scope)
    return "–" if reach == "no" else reach


# ---- Python ----------------------------------------------------------------------------------------------------------

CODE: tuple[Any, ...] = (Client, PrivateClassifier, PrivateRegressor, Account, Session, Ledger, verify, audit_home)
PARTS = ("dpserve.", "training.learners.")  # of a door's bases, those whose methods are for who calls it
# Methods of a learner that are for the platform.
PLATFORMS = {
    "check",
    "learn",
    "rounds_for",
    "recipe",
    "guess",
    "declared",
    "public_facts",
    "get_metadata_routing",
}  # of a learner
SECTION = re.compile(r"^(Args|Returns|Raises):\n", re.M)


def python() -> str:
    """The doors of the rooms for programs, from their signatures and docstrings."""
    names = ", ".join(f"`{each}`" for each in sorted({kind.__name__ for kind in LEARNERS.values()}))
    intro = (
        "What programs call, from the code: the [client](clients.md#in-python) of a service; the "
        f"[estimators](../notebook.md), which `dpserve.learners` has by name ({names} and the regressors), with the "
        "methods of the two bases shown here; and, for who builds on the platform itself, the doors of the rooms.\n\n"
    )
    return f"# Python\n\n{intro}" + "".join(map(_code, CODE)) + checks()


def checks() -> str:
    """Return how far scikit-learn's checks go: a table for each list of exceptions, as a test keeps them."""
    lists = {"CHECKS": CHECKS, "CHECKS_OF_NUMBERS": CHECKS_OF_NUMBERS}
    lists["CHECKS_OF_MANY"] = {name: why for name, why in CHECKS_OF_MANY.items() if name not in CHECKS}
    heads = {"CHECKS": "of two classes", "CHECKS_OF_NUMBERS": "of numbers", "CHECKS_OF_MANY": "and of more classes"}
    tables = (
        f"{heads[name].capitalize()} (`{name}`):\n\n"
        + table(
            ("check", "why a private estimator does not pass it"),
            [(f"`{check}`", why) for check, why in sorted(of.items())],
        )
        for name, of in lists.items()
    )
    text = (
        "`check_estimator(estimator, expected_failed_checks=CHECKS)` passes for an estimator with `classes=[0, 1]` and "
        "an `Account(epsilon=100, rowwise=True)`, with these exceptions; a test keeps the lists exact. scikit-learn "
        "skips `check_pipeline_consistency`, `check_methods_sample_order_invariance` and "
        "`check_methods_subset_invariance`, because estimators are not deterministic (predictions do not depend on the "
        "other rows; a test of ours says so). Array-likes are checked by scikit-learn's own checks, whose errors come "
        "out: one-dimensional, sparse, complex, empty, or with another number of columns. All errors about X and y "
        "are also `ValueError`s or `TypeError`s.\n\n"
    )
    return f"## scikit-learn's checks\n\n{text}" + "".join(tables)


def _code(door: Any) -> str:
    text = f"## {door.__name__}\n\n`{door.__module__}`\n\n{documented(inspect.getdoc(door))}"
    for name, member in members(door).items():
        function = getattr(member, "__func__", member)
        if inspect.isfunction(function) and not name.startswith("_"):
            text += f"### {door.__name__}.{name}\n\n```python\n{name}{signature(function)}\n```\n\n"
            text += documented(inspect.getdoc(getattr(door, name)))
    return text


def signature(function: Any) -> str:
    """As it is called: without `self`, quotes around types, and addresses of functions."""
    text = re.sub(r"^\((self|cls)(, )?", "(", str(inspect.signature(function)))
    text = re.sub(r"""(: |-> )(['"])(.*?)\2""", r"\1\3", text)
    return re.sub(r"<function \S+ at 0x[0-9a-f]+>", "...", text)


def members(door: Any) -> dict[str, Any]:
    """Of a class, its own first, then what its parts bring to it; of a function nothing."""
    if not inspect.isclass(door):
        return {}
    parts = [part for part in door.__mro__ if part is door or part.__module__.startswith(PARTS)]
    found = {name: vars(part)[name] for part in reversed(parts) for name in vars(part)}
    order = dict.fromkeys(name for part in parts for name in vars(part))
    return {
        name: found[name]
        for name in order
        if name not in PLATFORMS or door.__module__ != "training.learners.base.private_learner"
    }


def documented(text: str | None) -> str:
    """A docstring as Markdown; each of Args, Returns and Raises becomes a table."""
    first, *sections = SECTION.split(inspect.cleandoc(text or ""))
    tables = (
        table(
            (head.lower(), "meaning"), [(f"`{name}`", escape(meaning, quote=False)) for name, meaning in entries(body)]
        )
        for head, body in zip(sections[::2], sections[1::2], strict=True)
    )
    return prose(first) + "".join(tables)


def entries(section: str) -> list[tuple[str, str]]:
    """Name and meaning of each entry of a section; lines further in go on with the one before."""
    return re.findall(r"^(\w+): (.*(?:\n +.*)*)", dedent(section), re.M)


CHANGES = "changelog"
PAGES: dict[str, Callable[[], str]] = {
    "reference/python": python,
    "reference/commands": commands,
    "reference/rest": rest,
    "reference/learners": learners,
    "reference/errors": errors,
    "reference/settings": configuration,
    "reference/metrics": figures,
    "reference/alerts": alerts,
    "reference/access": access,
}


if __name__ == "__main__":
    for page in (*PAGES, CHANGES):
        target = Path(sys.argv[1]) / f"{page}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(made(page), "utf-8")
