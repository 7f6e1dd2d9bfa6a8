"""Public models that boosting begins from (docs/public-start.md): kept in the home by the digest that a job names.

A start is a sum over features, two classes' log-odds: of public rows, learnt openly, or of a model of this home, whose
numbers are released. Rows are scored by the dataset's own bins: what another model says there, it says of one value of
the bin, which changes no promise, for a start is any public function of a row.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accountant.home import Home
from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.system.files import PRIVATE, replace_file
from models.features.features import BooleanFeature, CategoricalFeature, Feature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.store.bundle import ModelStore
from models.store.loading import load_of_home
from training.learners.ebm.ebm import DPEBMClassifier
from training.outside import admitted
from training.requests import AUTO, JobRequest
from training.rows.schema.schema import Schema, schema_of
from training.session.exact import Exact
from training.session.session import Public, Start

if TYPE_CHECKING:
    import pyarrow as pa

    from training.rows.tables import data
else:  # a plan without a file of public rows reads none
    pa, data = later("pyarrow"), later("training.rows.tables.data")

FOLDER = "starts"
LEARNER, PARAMETER = "ebm", "start"
OPEN = Budget.of("8", "0.000001")  # by whose public rule public rows are learnt, without noise
FEWEST_ROWS = 50
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)
Parameters = Mapping[str, Any]


def learn_start(home: Home, dataset: str, target: str | None, path: Path, parameters: Parameters | None = None) -> str:
    """Learn a start from a file of public rows, without noise, by the dataset's schema; return its digest.

    Nothing checks that the rows are public, nor that they are not those of the dataset: who brings them says so.
    DataError where they do not fit the schema, InputError where they are fewer than FEWEST_ROWS, or not of two classes.
    """
    schema = schema_of(home, home.ledger.dataset(dataset))
    question = schema.question(target, parameters)
    if len(question.classes or ()) != 2:
        raise InputError("public: boosting begins from a public score of two classes alone; leave it out")
    table = pa.Table.from_batches(data.read_batches(path, question))
    if len(table) < FEWEST_ROWS:
        raise InputError(f"public={path.name}: {len(table)} rows; a start needs {FEWEST_ROWS}")
    return _keep(home, learn_openly(question, table))


def learn_openly(question: Schema, table: pa.Table) -> AdditiveEnsemble:
    """Learn from public rows without noise, at the declared bins."""
    public = Public.of(replace(question, records=len(table)), Relation.ADD_REMOVE, OPEN, pure=False)
    learner = DPEBMClassifier(cuts="declared", pairs=0, engine="epochs")
    rows = data.rows_of(question, table, table[question.target], Relation.ADD_REMOVE)
    ensemble = learner.learn(Exact(public, learner.guess(public), rows))
    assert isinstance(ensemble, AdditiveEnsemble)  # of two classes
    return ensemble


def is_digest(text: str) -> bool:
    """Return whether a text names a start by its digest, and not by a model."""
    return _DIGEST.fullmatch(text) is not None


def start_named(home: Home, reference: str) -> str:
    """Return the digest of the start that a job names: a digest of one that is kept, or a model of this home, verified.
    InputError where it is none, or no sum over features of two classes.
    """
    if is_digest(reference):
        _read(home, reference)
        return reference
    folder = ModelStore(home.models).resolve(reference)
    verified = load_of_home(home, folder, folder.parent.name, runs=False)
    return _keep(home, verified.ensemble)


def named(home: Home, asked: JobRequest) -> tuple[str, dict[str, Any]]:
    """Return the learner and the parameters of a job that names a public start."""
    if asked.tuning is not None:
        raise InputError("public: no private tuning begins from a public score; leave one of both out")
    if asked.learner not in (AUTO, LEARNER):
        raise InputError(f"learner={asked.learner}: only {LEARNER} begins from a public score; leave it out, or public")
    return LEARNER, {**(asked.parameters or {}), PARAMETER: start_named(home, str(asked.public))}


def begin(home: Home, public: Public, learner: str, parameters: Parameters) -> Public:
    """Add the start, or the learner of others, that a job's parameters name to what it may know. InputError where
    that is of other classes, of none of the features, or not kept here any more.
    """
    digest = parameters.get(PARAMETER)
    if learner != LEARNER or not digest:
        return admitted.begin(home, public, learner, parameters)
    ensemble = _read(home, str(digest))
    if (ensemble.target, tuple(map(str, ensemble.classes))) != (public.target, tuple(map(str, public.classes or ()))):
        raise InputError(f"public: the start tells {ensemble.target} apart by other classes than {public.target}'s")
    if not {feature.name for feature in ensemble.features}.intersection(feature.name for feature in public.features):
        raise InputError("public: the start reads none of the dataset's features")
    return replace(public, start=score_of(ensemble, public.features, str(digest)))


def score_of(ensemble: AdditiveEnsemble, features: Sequence[Feature], digest: str) -> Start:
    """Return the score of a model over the codes of these features: 0 where it does not read one."""
    known, terms = {feature.name: at for at, feature in enumerate(ensemble.features)}, []
    for feature in features:
        term = np.zeros(feature.bins)
        if feature.name in known:
            at = known[feature.name]
            codes = _codes_of(feature, ensemble.features[at])
            term = np.array(ensemble.terms[at])[codes] * ensemble.link
        terms.append(tuple(term.tolist()))
    return Start(digest, ensemble.constant * ensemble.link, tuple(terms))


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


def _keep(home: Home, ensemble: Any) -> str:
    if not isinstance(ensemble, AdditiveEnsemble) or not ensemble.classes:
        raise InputError(
            "public: must be a sum over features of two classes (of the learner ebm, or public rows in a file)"
        )
    raw = ensemble_bytes(ensemble)
    digest = hashlib.sha256(raw).hexdigest()
    folder = home.path / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    replace_file(folder / f"{digest}.json", raw, PRIVATE)
    return digest


def _read(home: Home, digest: str) -> AdditiveEnsemble:
    try:
        raw = (home.path / FOLDER / f"{digest}.json").read_bytes()
    except OSError:
        raise InputError(f"public={digest}: no start of this digest is kept here; name the file again") from None
    if hashlib.sha256(raw).hexdigest() != digest:
        raise ModelInvalid(f"start {digest}: its file says something else; name the public rows or the model again")
    ensemble = ensemble_from_bytes(raw)
    assert isinstance(ensemble, AdditiveEnsemble)  # nothing else is kept
    return ensemble
