"""Rows that are nobody's secret, by the word of who brings them: what a model is worth on them, exactly and free, and
what boosting may begin from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.access.grants import Access
from accountant.errors import DataError
from accountant.home import Home
from accountant.system.lazy_import import load
from dpserve_verify.errors import InputError
from models.features.column_law import ClassFeature, told_row
from models.features.features import Feature, NumericFeature, encode_columns
from models.forms.ensemble import Ensemble
from models.parts.answers import labels_of, probabilities_of
from models.store.loading import VerifiedModel
from models.worth.layout import BINS
from models.worth.report import Curve, Report, curves_of
from models.worth.stated import layout_of
from training.datasets.copy_guard import Asker
from training.datasets.described import written_as
from training.datasets.known_rows import Door, require_unregistered
from training.datasets.made_up import profiles_behind
from training.planning import starts
from training.requests import JobRequest
from training.rows.schema.schema import Schema, Target, schema_of
from training.rows.tables.data import read_batches, read_classes
from training.rows.tables.row_files import read_columns

known = load("sklearn.metrics")
BEGIN_INSTEAD = "begin from a released model of {}, or from other rows"
FEWEST_ROWS = 50  # that a start is learnt from
INSTEAD = "evaluate on them by --dataset {} --epsilon E, from the budget of those people"
WORD = "measured by {by} on rows of their own: not certified, and free"


def evaluate_rows(
    home: Home,
    verified: VerifiedModel,
    reference: str,
    path: Path,
    by: str,
    said: Path | None = None,
    is_public: bool = False,
    access: Access | None = None,
) -> Report:
    """Return the figures of scikit-learn on the rows of a file with the model's target; `said`: a schema that says how
    it is written, where that of the model's dataset does not. `is_public`: `by` says that they are nobody's secret,
    which few rows need; `access`: what `by` may see, None where they hold the home's keys.

    Raises:
        DataError: the rows do not fit.
        InputError: they stand in a registered dataset, whose people are asked at a price; or are too few, or too many
            files were compared in the last hour (`training.datasets.copy_guard`).
    """
    ensemble = verified.ensemble
    answer = _answer_of(ensemble.target, ensemble.classes)
    about = verified.certificate.form.dataset
    schema = written_as(home, about.name, about.schema_digest, said)
    door = Door(home, about.name, Asker(by, access), INSTEAD)
    digest = require_unregistered(door, path, [*ensemble.features, answer], schema, is_public)
    scores, answers, without = _read(ensemble, path, answer, schema)
    found, curves = _figures(ensemble, scores, answers)
    word = WORD.format(by=by)
    metrics: list[dict[str, Any]] = [{"metric": name, "value": f"{value:.6f}"} for name, value in found.items()]
    body = {
        "model": reference,
        "sha256": verified.certificate.sha256,
        "target": ensemble.target,
        "data": {"file": path.name, "sha256": digest, "records": len(answers)},
        "metrics": metrics,
        "word": word,
    }
    left_out = f" {without} more have no answer, and are left out as at training." if without else ""
    rows = f"{len(answers)} rows of {path.name}, sha256 {digest}.{left_out}"
    facts = (rows, f"Exact, {word}.")
    return Report(f"What {reference} is worth on {path.name}", facts, metrics, curves, body)


def learn_start(home: Home, asked: JobRequest, path: Path, by: str, access: Access | None = None) -> str:
    """Learn a start from a file of public rows, without noise, by the dataset's schema; return its digest. `access`:
    what `by` may see; None: they hold the keys of the home.

    Nothing checks that the rows are public: who brings them says so. Of synthetic rows, which their mark tells, the
    profile that they were drawn from is named. DataError where they do not fit the schema,
    InputError where they are fewer than FEWEST_ROWS, or stand in a registered dataset (docs/privacy/rows.md).
    """
    question = schema_of(home, home.ledger.dataset(asked.dataset)).question(asked.target, asked.parameters)
    answer = _answer_of(question.target, question.classes)
    made_from = profiles_behind(home, path)
    door = Door(home, asked.dataset, Asker(by, access), BEGIN_INSTEAD)
    require_unregistered(door, path, [*question.features, answer], question, is_public=True)
    table = pa.Table.from_batches(read_batches(path, question))
    if len(table) < FEWEST_ROWS:
        raise InputError(f"public={path.name}: {len(table)} rows; a start needs {FEWEST_ROWS}")
    return starts.keep(home, starts.learn_openly(question, table), made_from)


def _answer_of(target: str, classes: Sequence[Any] | None) -> Feature:
    return ClassFeature(target, tuple(map(str, classes))) if classes else NumericFeature(target, ())


def _read(
    ensemble: Ensemble, path: Path, answer: Feature, schema: Schema | None
) -> tuple[NDArray[np.int64], NDArray[Any], int]:
    """Return scores (n, outputs) and true answers (n,): class indices, or numbers clipped to the public range. And how
    many rows were left out, for they have no answer and `schema` says so of the target: as at training.
    """
    target, targets = Target(ensemble.target, ensemble.classes, None), schema.targets if schema else ()
    may_lack = any(declared.name == target.name and declared.leave_out for declared in targets)
    scores, answers, start = [], [], 0
    for columns in read_columns(path, [*ensemble.features, answer], schema):
        true = np.asarray(columns[ensemble.target])
        if target.classes:
            codes = read_classes(target, pa.array(true, pa.large_string()))
            bad, missing = codes < 0, codes == -1
        else:
            codes = np.asarray(true, np.float64)
            bad = missing = np.isnan(codes)
        refused = np.flatnonzero(bad & ~missing if may_lack else bad)
        if len(refused):
            where = told_row(start + int(refused[0]))
            raise DataError(f"{ensemble.target}, {where}: missing, or no answer of the model's")
        scores.append(ensemble.coded_scores(encode_columns(ensemble.features, columns))[~bad])
        answers.append((codes if target.classes else np.clip(codes, *(ensemble.target_range or (0.0, 0.0))))[~bad])
        start += len(codes)
    count = sum(map(len, answers))
    if not count:
        raise DataError(f"data={path.name}: the file has no rows{' with an answer' if start else ''}")
    return np.concatenate(scores), np.concatenate(answers), start - count


def _figures(
    ensemble: Ensemble, scores: NDArray[np.int64], answers: NDArray[Any]
) -> tuple[dict[str, float], tuple[Curve, ...]]:
    if not ensemble.classes:
        low, high = ensemble.target_range or (0.0, 0.0)
        said = np.clip(low / 2 + high / 2 + ensemble.link * scores[:, 0], low, high)
        found = {
            "rmse": known.root_mean_squared_error(answers, said),
            "mae": known.mean_absolute_error(answers, said),
            "median_error": known.median_absolute_error(answers, said),
            "error_90": float(np.quantile(np.abs(answers - said), 0.9)),
        }
        return found | ({"r2": known.r2_score(answers, said)} if len(answers) > 1 else {}), ()
    places = {label: place for place, label in enumerate(ensemble.classes)}
    said = np.array([places[label] for label in labels_of(ensemble.classes, scores).tolist()])
    chance, classes = probabilities_of(scores, ensemble.link, ensemble.bends), np.arange(len(ensemble.classes))
    found = {
        "accuracy": known.accuracy_score(answers, said),
        "log_loss": known.log_loss(answers, chance, labels=classes),
    }
    if len(classes) > 2:
        macro = {"labels": classes, "average": "macro", "zero_division": 0.0}
        return found | {"balanced_accuracy": known.recall_score(answers, said, **macro),
                        "f1": known.f1_score(answers, said, **macro)}, ()  # fmt: skip
    found |= {
        "precision": known.precision_score(answers, said, zero_division=0.0),
        "recall": known.recall_score(answers, said, zero_division=0.0),
        "f1": known.f1_score(answers, said, zero_division=0.0),
        "brier": float(np.mean((chance[:, 1] - answers) ** 2)),
        "prevalence": float(answers.mean()),
    }
    if len(np.unique(answers)) == 2:  # of one class alone there are no ranks to compare
        found |= {
            "auroc": known.roc_auc_score(answers, scores[:, 0]),
            "average_precision": known.average_precision_score(answers, scores[:, 0]),
        }
    layout = layout_of(ensemble)
    counts = np.bincount(layout.cells(scores, answers).ravel(), minlength=layout.size).reshape(2, BINS)
    return found, curves_of(counts.astype(np.float64), layout.middles, ensemble.classes)
