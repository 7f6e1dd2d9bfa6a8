"""Models that boosting begins from (docs/reference/training.md): kept in the home by the digest that a job names,
each with the releases that it was made from.

A start is a sum over features: of public rows, learnt openly, or of a model of this home, whose numbers are released.
Rows are scored by the dataset's own bins: what another model says there, it says of one value of the bin, which changes
no promise, for a start is any public function of a row.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from accountant.home import Home
from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.system.files import PRIVATE, replace_file
from models.features.features import BooleanFeature, CategoricalFeature, Feature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.classes import ClassesEnsemble
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.parts.answers import middle
from models.store.bundle import ModelStore
from models.store.loading import load_of_home
from training.learners.ebm.ebm import DPEBMClassifier
from training.learners.others import OF_OTHERS, others
from training.requests import AUTO, JobRequest
from training.rows.schema.schema import Schema
from training.session.exact import Exact
from training.session.session import Public, Start

if TYPE_CHECKING:
    import pyarrow as pa

    from training.rows.tables import data
else:  # a plan without a file of public rows reads none
    pa, data = later("pyarrow"), later("training.rows.tables.data")

FOLDER, SOURCES = "starts", ".made-from.json"
LEARNER, PARAMETER = "ebm", "start"
WHY = "a public start is given, and only ebm begins from one: ebm"
OPEN = Budget.of("8", "0.000001")  # by whose public rule public rows are learnt, without noise
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)
Parameters = Mapping[str, Any]
Additive = AdditiveEnsemble | ClassesEnsemble


class StartMissing(InputError):
    """A start that a job names is not kept in this home."""


def learn_openly(question: Schema, table: pa.Table) -> Additive:
    """Learn from public rows without noise, at the declared bins."""
    public = Public.of(replace(question, records=len(table)), Relation.ADD_REMOVE, OPEN, pure=False)
    learner = DPEBMClassifier(cuts="declared", pairs=0, engine="epochs")
    rows = data.rows_of(question, table, table[question.target], Relation.ADD_REMOVE)
    ensemble = learner.learn(Exact(public, learner.guess(public), rows))
    assert isinstance(ensemble, Additive)
    return ensemble


def is_digest(text: str) -> bool:
    """Return whether a text names a start by its digest, and not by a model."""
    return _DIGEST.fullmatch(text) is not None


def resolve_start(home: Home, reference: str) -> str:
    """Return the digest of the start that a job names: a digest of one that is kept, or a model of this home, verified.
    InputError where it is none, or no sum over features.
    """
    if is_digest(reference):
        _read(home, reference)
        return reference
    folder = ModelStore(home.models).resolve(reference)
    verified = load_of_home(home, folder, folder.parent.name, runs=False)
    return keep(home, verified.ensemble, [verified.certificate.issued])


def resolve_job(home: Home, asked: JobRequest) -> tuple[str, dict[str, Any]]:
    """Return the learner and the parameters of a job that names a public start."""
    if asked.learner not in (AUTO, LEARNER):
        raise InputError(f"learner={asked.learner}: only {LEARNER} begins from a public score; leave it out, or public")
    return LEARNER, {**(asked.parameters or {}), PARAMETER: resolve_start(home, str(asked.public))}


def begin(home: Home, public: Public, learner: str, parameters: Parameters) -> Public:
    """Add the start, or the learner of others, that a job's parameters name to what it may know. InputError where
    that is of other classes, of none of the features, or not kept here any more.
    """
    if learner in OF_OTHERS:
        return others().begin(home, public, parameters)
    digest = parameters.get(PARAMETER)
    if learner != LEARNER or not digest:
        return public
    ensemble = _read(home, str(digest))
    if not {feature.name for feature in ensemble.features}.intersection(feature.name for feature in public.features):
        raise InputError("public: the start reads none of the dataset's features")
    return replace(public, start=score_of(ensemble, public, str(digest)))


def score_of(ensemble: Additive, public: Public, digest: str) -> Start:
    """Return the score of a model over the codes of the features: 0 where it does not read one. InputError where it
    predicts something else.
    """
    matrix, base = _outputs_of(ensemble, public)
    known, terms = {feature.name: at for at, feature in enumerate(ensemble.features)}, []
    tables, constant = ensemble.tables()
    for feature in public.features:
        term = np.zeros((feature.bins, len(matrix)))
        if feature.name in known:
            at = known[feature.name]
            term = tables[at][_codes_of(feature, ensemble.features[at])] @ matrix
        terms.append(tuple(map(tuple, term.tolist())))
    return Start(digest, tuple((constant @ matrix + base).tolist()), tuple(terms))


def _outputs_of(ensemble: Additive, public: Public) -> tuple[Any, float]:
    """Return by which matrix a model's scores become those of a start, and what is added to them."""
    theirs, own = list(map(str, ensemble.classes)), list(map(str, public.classes or ()))
    if (ensemble.target, sorted(theirs)) != (public.target, sorted(own)):
        raise InputError(
            f"public: the start predicts {_describe(ensemble.target, theirs)}, and not {_describe(public.target, own)}"
        )
    if isinstance(ensemble, ClassesEnsemble):
        return ensemble.link * np.eye(len(own))[[own.index(label) for label in theirs]], 0.0
    if ensemble.target_range is None:
        slope = dict(ensemble.bends).get(1, ensemble.link)
        return np.array([[slope if theirs == own else -slope]]), 0.0
    assert public.target_range is not None  # neither has classes
    (low, high), centre = public.target_range, middle(ensemble.target_range)
    half = (high - low) / 2
    return np.array([[ensemble.link / half]]), (centre - middle(public.target_range)) / half


def _describe(target: str, classes: Sequence[str]) -> str:
    return f"{target}, one of {', '.join(classes)}"[:80] if classes else f"the number {target}"


def _codes_of(feature: Feature, other: Feature) -> Any:
    """Return, for each code of a feature, the other's code of a value that has it."""
    if feature == other:
        return np.arange(feature.bins)
    values: list[Any]
    match feature, other:
        case NumericFeature(), NumericFeature() if feature.kind == other.kind:
            ends = feature.edges or (0.0,)
            between = [(low + high) / 2 for low, high in pairwise(ends)]
            last = [np.nextafter(ends[-1], np.inf)] if feature.edges else []
            values = [ends[0], *between, *last, np.nan]
        case CategoricalFeature(), CategoricalFeature():
            values = [*feature.values, "\ufffd" * 8, None]
        case BooleanFeature(), BooleanFeature():
            values = [0.0, 1.0, np.nan]
        case _:
            raise InputError(f"public: {feature.name} is a column of another kind in the start")
    return other.encode(values)


def keep(home: Home, ensemble: Any, made_from: Collection[int]) -> str:
    """Keep a start in the home; return its digest. InputError where it is no sum over features.

    `made_from`: entries of the releases that it is or was learnt from; none where its rows are nobody's secret. Beside
    it stand all that anybody ever named: two files may teach the same numbers.
    """
    if not isinstance(ensemble, Additive):
        raise InputError("public: must be a sum over features (of the learner ebm, or public rows in a file)")
    raw = ensemble_bytes(ensemble)
    digest = hashlib.sha256(raw).hexdigest()
    folder = home.path / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        known = sources_of(home, digest)
    except StartMissing:
        known = ()
    replace_file(folder / f"{digest}{SOURCES}", json.dumps(sorted({*known, *made_from})).encode(), PRIVATE)
    replace_file(folder / f"{digest}.json", raw, PRIVATE)
    return digest


def sources_of(home: Home, digest: str) -> tuple[int, ...]:
    """Return the entries of the releases that a start was made from. StartMissing where nothing says so: without that
    no certificate could state what a model that begins from it holds.
    """
    try:
        entries = json.loads((home.path / FOLDER / f"{digest}{SOURCES}").read_bytes())
    except (OSError, ValueError):
        raise StartMissing(
            f"public={digest}: what this start was made from is not kept here; name the file or the model again"
        ) from None
    return tuple(entries)


def sources_behind(home: Home, learner: str, parameters: Parameters) -> tuple[int, ...]:
    """Return the entries of the releases behind the start that a job's parameters name; none where they name none."""
    digest = parameters.get(PARAMETER) if learner == LEARNER else None
    return sources_of(home, str(digest)) if digest else ()


def _read(home: Home, digest: str) -> Additive:
    try:
        raw = (home.path / FOLDER / f"{digest}.json").read_bytes()
    except OSError:
        raise StartMissing(f"public={digest}: no start of this digest is kept here; name the file again") from None
    if hashlib.sha256(raw).hexdigest() != digest:
        raise ModelInvalid(f"start {digest}: its file says something else; name the public rows or the model again")
    ensemble = ensemble_from_bytes(raw)
    assert isinstance(ensemble, Additive)  # nothing else is kept
    return ensemble
