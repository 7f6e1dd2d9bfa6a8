"""Run somebody else's learner: a sealed process without rows, and the strict reading of all that it sends."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace, Mechanism
from accountant.privacy.claims import BOUNDS
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import NANO, from_nano, nano
from dpserve_verify.privacy.events import MAX_NOISE
from models.forms.additive import AdditiveEnsemble
from models.forms.ensemble import Ensemble
from training.calibration.calibrate import calibrate, rehearse
from training.calibration.plan_warnings import check_exportable
from training.outside.queries import Histogram, Table, TableSums, largest
from training.session.learner import Recipe
from training.session.session import Public, Query, Releaser, Source

CHILD = Path(__file__).parent / "child.py"
LONGEST, MOST_CELLS, MOST_TABLES, MOST_RELEASES = 1 << 22, 1 << 16, 1 << 10, 10_000
GREATEST = 1 << 20  # entry of a table, in size
SECONDS = 600.0  # by the clock, of one run
CODE, AUTHOR, ADMITTED_BY = ENTERED = "code", "author", "admitted_by"  # what names it among a job's parameters
SMALLEST_SHARE, LARGEST_SHARE = Decimal("0.0001"), Decimal(1)


class OutsideFailed(InputError):
    """Somebody else's learner failed, or sent what it may not. Its message is made of what it sent: it has no rows."""


def source_of(reference: str) -> Source:
    """Read a learner's file without running it: `path.py[:Class]`, or the name of an entry point in the group
    `dpserve.learners`. InputError where there is none.
    """
    name, _, kind = reference.partition(":")
    author = name
    if not name.endswith(".py"):
        found = [point for point in entry_points(group="dpserve.learners") if point.name == name]
        spec = find_spec(found[0].module) if found else None
        if spec is None or spec.origin is None:
            raise InputError(f"learner={reference!r:.200}: no such learner is installed")
        distribution = found[0].dist
        author = f"{distribution.name} {distribution.version}" if distribution else found[0].module
        name, kind = spec.origin, found[0].attr
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"learner={reference!r:.200}: cannot be read ({type(error).__name__})") from None
    return Source(text, kind or "Learner", author)


@dataclass(frozen=True)
class OutsideLearner:
    """Somebody else's learner, as dpserve's own are driven: `learn` is a process of its own each time. `source`: None
    in a job, which runs what was admitted for it, `Public.code`.
    """

    source: Source | None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    name: ClassVar[str] = "outside"

    def learn(self, session: Releaser) -> Ensemble:
        """Run it sealed, release what it asks for, and return its model. OutsideFailed where it does not keep to the
        rules; InputError where this system cannot seal it.
        """
        source = self.source or session.public.code
        if source is None:
            raise InputError("learner: none was admitted for this job")
        own = {key: value for key, value in self.parameters.items() if self.source or key not in ENTERED}
        with _Process() as process:
            process.send({
                "source": source.text, "kind": source.kind, "parameters": own,
                "public": _public(session.public),
            })  # fmt: skip
            for _ in range(MOST_RELEASES):
                said = process.read()
                if "model" in said:
                    return _model(said["model"], session.public)
                if "failed" in said:
                    raise OutsideFailed(f"learner: it failed ({said['failed']!r:.300})")
                query, mechanism = _read_ask(said, session)
                process.send({"answer": np.asarray(session.release(query, mechanism)).tolist()})
        raise OutsideFailed(f"learner: more than {MOST_RELEASES} releases")

    def recipe(self, public: Public, bounds: tuple[str, ...] = BOUNDS) -> Recipe:
        """Rehearse and calibrate to the public budget, as dpserve's own are. `bounds`: that a claim may come from."""
        recipe = calibrate(self, public, public.budget, None, bounds)
        check_exportable(self, public, recipe.blank)
        return replace(recipe, blank=None)

    def check(self, public: Public) -> None:
        """Refuse nothing: what does not fit shows in the rehearsal."""

    def guess(self, public: Public) -> Decimal | None:
        """Return None: no unit is known before."""
        return None

    def rounds_for(self, public: Public) -> int:
        """Count the releases of a rehearsal."""
        return len(rehearse(self, public, Decimal(1)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return what its constructor is given, and in a job what names it."""
        return dict(self.parameters)


class _Process:
    """A sealed process, and the lines to and from it."""

    def __init__(self) -> None:
        self._end, self._rest = time.monotonic() + SECONDS, b""
        self._child = subprocess.Popen(
            [sys.executable, "-I", str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, cwd="/", close_fds=True,
            env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )  # fmt: skip

    def __enter__(self) -> _Process:
        said = self.read()
        if said != {"sealed": True}:
            self.__exit__()
            raise InputError(
                f"learner: this system cannot seal a process ({said.get('unsealed')!r:.200}); learners of others run "
                "on Linux, x86-64 or ARM, with seccomp"
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._child.kill()
        self._child.communicate()

    def send(self, body: dict[str, Any]) -> None:
        """Write a line. OutsideFailed where nobody reads it."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(body).encode() + b"\n")
            self._child.stdin.flush()
        except OSError:
            raise OutsideFailed("learner: its process ended") from None

    def read(self) -> dict[str, Any]:
        """Read a line: a JSON object of at most LONGEST bytes. OutsideFailed where it is not, or none comes in time."""
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if len(self._rest) > LONGEST:
                    raise OutsideFailed(f"learner: it sent more than {LONGEST} bytes at once")
                if not selector.select(max(0.0, self._end - time.monotonic())):
                    raise OutsideFailed(f"learner: it did not end within {SECONDS:.0f} s")
                more = os.read(self._child.stdout.fileno(), 1 << 16)
                if not more:
                    raise OutsideFailed("learner: its process ended; it took more memory or time than it may")
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise OutsideFailed("learner: it sent what is no JSON object")
        return said


def _public(public: Public) -> dict[str, Any]:
    return {
        "features": [{"name": feature.name, "kind": feature.kind, "bins": feature.bins} for feature in public.features],
        "target": public.target,
        "classes": None if public.classes is None else list(public.classes),
        "target_range": public.target_range,
        "records": public.records,
        "relation": public.relation.value,
        "epsilon": str(public.budget.epsilon),
        "delta": str(public.budget.delta),
        "prevalence": list(public.prevalence),
    }


def _read_ask(said: dict[str, Any], session: Releaser) -> tuple[Query, Mechanism]:
    """Read one request. OutsideFailed where a key is missing, unknown or of another kind."""
    public, ask = session.public, said.get("ask")
    keys = {"histogram": {"features", "by_class", "noise"}, "sums": {"tables", "noise"}, "select": {"tables"}}
    if not isinstance(ask, str) or ask not in keys or set(said) != keys[ask] | {"ask", "share"}:
        raise OutsideFailed(f"learner: it asks {sorted(said)!s:.200}; a request is one of {', '.join(keys)}")
    share = _share(said["share"])
    if ask == "select":
        mechanism: Mechanism = public.selection(_part(session.unit, share))
    elif said["noise"] == "laplace":
        mechanism = DiscreteLaplace(_part(session.unit, share))
    elif said["noise"] == "gaussian" and not public.pure:
        mechanism = DiscreteGaussian(min(MAX_NOISE, from_nano(-(-NANO * NANO // nano(_part(session.unit, share))))))
    else:
        raise OutsideFailed("learner: noise must be laplace, or gaussian where there is a delta")
    if ask == "histogram":
        return _read_histogram(said, public, mechanism.norm), mechanism
    return TableSums(_read_tables(said["tables"], public), mechanism.norm), mechanism


def _read_histogram(said: dict[str, Any], public: Public, norm: str) -> Histogram:
    features, by_class = said["features"], said["by_class"]
    if not isinstance(by_class, bool) or (by_class and public.classes is None):
        raise OutsideFailed("learner: by_class must be true or false, and false where the target is a number")
    if not isinstance(features, list) or not 1 <= len(features) <= 2 or len(set(map(str, features))) < len(features):
        raise OutsideFailed("learner: features must be one place or two")
    places = tuple(_whole(at, 0, len(public.features) - 1) for at in features)
    widths = tuple(public.features[at].bins for at in places)
    query = Histogram(places, widths, len(public.classes or ()) if by_class else 0, norm)
    if query.size > MOST_CELLS:
        raise OutsideFailed(f"learner: {query.size} cells; at most {MOST_CELLS}")
    return query


def _read_tables(said: Any, public: Public) -> tuple[Table, ...]:
    if not isinstance(said, list) or not 1 <= len(said) <= MOST_TABLES:
        raise OutsideFailed(f"learner: tables must be a list of 1 to {MOST_TABLES}")
    tables, lines = [], {1, len(public.classes or ())}
    for each in said:
        if not isinstance(each, dict) or set(each) != {"feature", "values"} or not isinstance(each["values"], list):
            raise OutsideFailed("learner: a table is a feature and its values")
        feature = _whole(each["feature"], 0, len(public.features) - 1)
        width = public.features[feature].bins
        if len(each["values"]) not in lines or any(not isinstance(v, list) or len(v) != width for v in each["values"]):
            raise OutsideFailed(f"learner: values must be of every class, or of one line, and {width} in each")
        tables.append(
            Table(feature, tuple(tuple(_whole(v, -GREATEST, GREATEST) for v in line) for line in each["values"]))
        )
    if largest(tables) * public.most >= 1 << 62:
        raise OutsideFailed("learner: entries so large that 64 bits do not hold their sums")
    return tuple(tables)


def _model(said: Any, public: Public) -> Ensemble:
    """Read an additive model: whole `terms` of each feature's codes, `constant`, and `link` by which scores count."""
    if public.classes is not None and len(public.classes) != 2:
        raise OutsideFailed("learner: models of others tell two classes apart, or give a number")
    if not isinstance(said, dict) or set(said) != {"terms", "constant", "link"} or not isinstance(said["terms"], list):
        raise OutsideFailed("learner: a model has terms, constant and link")
    rows = [line if isinstance(line, list) else [] for line in said["terms"]]
    if [len(line) for line in rows] != [feature.bins for feature in public.features]:
        raise OutsideFailed("learner: terms must be of every feature, one for each of its bins")
    terms = tuple(tuple(_whole(v, -(1 << 32), 1 << 32) for v in line) for line in rows)
    link = said["link"]
    if not isinstance(link, float) or not 0 < link < 1e6:
        raise OutsideFailed("learner: link must be a number above 0")
    constant = _whole(said["constant"], -(1 << 32), 1 << 32)
    return AdditiveEnsemble(
        public.features, public.target, public.classes or (), public.target_range, link, constant, terms
    )


def _whole(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise OutsideFailed(f"learner: {value!r:.60} must be a whole number from {low} to {high}")
    return value


def _share(value: Any) -> Decimal:
    if not isinstance(value, str) or len(value) > 12 or not value.replace(".", "", 1).isdecimal():
        raise OutsideFailed(f"learner: share={value!r:.60} must be a decimal text")
    share = Decimal(value)
    if not SMALLEST_SHARE <= share <= LARGEST_SHARE:
        raise OutsideFailed(f"learner: share={value!r:.60} must be {SMALLEST_SHARE} to {LARGEST_SHARE}")
    return share


def _part(unit: Decimal, share: Decimal) -> Decimal:
    return from_nano(max(1, int(nano(unit) * share)))
