"""From scores to answers: what classes may be, which one a score means, and how likely each is.

Two classes have one score: label = classes[1] if score > 0 else classes[0], p(classes[1]) = 1 / (1 + exp(-link score)).
Beyond a score that `bends` name, away from 0, a point of score is worth another slope than `link`; labels are the same.
K > 2 classes have one score each: label = the class of the highest score, p = softmax(link scores). A tie is the class
that stands first, publicly. No classes at all: the model answers a number of a public range (`middle`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpserve_verify.errors import ModelInvalid
from models.features.features import Feature, encodable, feature_from_json

ClassLabel = str | int
Labels = tuple[ClassLabel, ...]
Scores = NDArray[np.int64]
Range = tuple[float, float]
Bends = tuple[tuple[int, float], ...]  # (score, slope), by score: what a point is worth from that score on, away from 0
MAX_CLASSES, MAX_BENDS = 255, 16


def sorted_places(classes: ArrayLike) -> NDArray[np.intp]:
    """Return the places (k,) of declared classes in the order of scikit-learn's `classes_`, which its scorers, searches
    and calibration take for sorted. Everything else of ours keeps the declared order.
    """
    return np.argsort(np.asarray(classes), kind="stable")


def check_head(
    features: Sequence[Feature], classes: Sequence[ClassLabel], link: float, target_range: Range | None = None
) -> None:
    """Check what every model states beside its numbers: classes, or the public range of a number. ModelInvalid else."""
    names = [feature.name for feature in features]
    if not names or len(set(names)) != len(names):
        raise ModelInvalid(f"features={names}: at least one, each name once")
    if target_range is not None:
        _check_range(classes, target_range)
    else:
        _check_classes(classes)
    if not 0 < link < inf:
        raise ModelInvalid(f"link={link}: must be > 0 and finite")


def _check_range(classes: Sequence[ClassLabel], target_range: Range) -> None:
    if classes:
        raise ModelInvalid(f"classes={classes}: a model has classes or a target_range, not both")
    fits = len(target_range) == 2 and all(type(end) is float and isfinite(end) for end in target_range)
    if not fits or not target_range[0] < target_range[1]:
        raise ModelInvalid(f"target_range={target_range}: two finite numbers, the lower one first")


def _check_classes(classes: Sequence[ClassLabel]) -> None:
    texts = all(type(label) is str and encodable(label) for label in classes)
    integers = all(type(label) is int and abs(label) < 1 << 63 for label in classes)
    if not (2 <= len(classes) <= MAX_CLASSES and (texts or integers) and len(set(classes)) == len(classes)):
        raise ModelInvalid(
            f"classes={classes}: two to {MAX_CLASSES} different texts, or as many different 64-bit integers"
        )


def check_bends(bends: Bends) -> None:
    """Raise ModelInvalid unless scores are whole, rise and are not 0, and every slope is above 0 and finite."""
    scores = [score for score, _ in bends]
    are_integers = all(type(score) is int and 0 < abs(score) < 1 << 53 for score in scores)
    rising = len(bends) <= MAX_BENDS and scores == sorted(set(scores))
    if not (are_integers and rising and all(0 < slope < inf for _, slope in bends)):
        raise ModelInvalid(f"bends={bends}: at most {MAX_BENDS} rising scores other than 0, each with a slope above 0")


def bends_to_json(bends: Bends) -> dict[str, Any]:
    """Return what a model says of its bends: nothing where it has none."""
    return {"bends": [[*bend] for bend in bends]} if bends else {}


def bends_from_json(body: Mapping[str, Any]) -> Bends:
    """Read what `bends_to_json` wrote; TypeError, ValueError or ModelInvalid where it is not one."""
    bends = body.get("bends", [])
    if type(bends) is not list:
        raise ModelInvalid("bends: must be a list")
    return tuple((score, float(slope)) for score, slope in bends)


def bend_words(bends: Bends) -> str:
    """Return what people are told of bends, behind the formula of the probability."""
    beyond = ", ".join(f"{slope:g} beyond {score}" for score, slope in bends)
    return f"; a point of score counts otherwise far from zero: {beyond}" if beyond else ""


def before(bends: Bends) -> str:
    """Return the words that follow "log odds" where a text tells what a feature adds: it is part of a score whose
    log-odds bend afterwards.
    """
    return " before calibration" if bends else ""


def pieces_of(link: float, bends: Bends) -> tuple[list[tuple[float, float, float]], float]:
    """Return log-odds by score as pieces (low, high, slope), and what is added to the sum of slope * clip(score, low,
    high); 0 at a score of 0, as without bends.
    """
    below, above = [bend for bend in bends if bend[0] < 0], [bend for bend in bends if bend[0] > 0]
    ends = [-inf, *(float(score) for score, _ in bends), inf]
    slopes = [*(slope for _, slope in below), link, *(slope for _, slope in above)]
    pieces = list(zip(ends, ends[1:], slopes, strict=False))
    return pieces, -sum(slope * (high if high < 0 else low if low > 0 else 0.0) for low, high, slope in pieces)


def head_from_json(body: Mapping[str, Any], numbers: set[str]) -> tuple[tuple[Feature, ...], str, Labels, float]:
    """Read features, target, classes and link of an object that holds these, its type and `numbers`, and nothing else.
    Where `target_range` is among the numbers, there are no classes.
    """
    head = {"type", "target", "link", "features", *(() if "target_range" in numbers else ("classes",))}
    if set(body) != head | numbers:
        raise ModelInvalid(f"ensemble.json: holds {sorted(body)}")
    classes = body.get("classes", [])
    if type(body["target"]) is not str or type(body["features"]) is not list or type(classes) is not list:
        raise ModelInvalid("ensemble.json: target must be a text, classes and features lists")
    features = tuple(feature_from_json(feature) for feature in body["features"])
    return features, body["target"], tuple(classes), float(body["link"])


def outputs_of(classes: Sequence[ClassLabel]) -> int:
    """Return how many scores tell the classes apart, or give a number."""
    return 1 if len(classes) in (0, 2) else len(classes)


def middle(target_range: tuple[float, float]) -> float:
    """Return what a score of 0 means for a number. Halves first: the sum of two great numbers may be infinite."""
    low, high = target_range
    return low / 2 + high / 2


def labels_of(classes: Sequence[ClassLabel], scores: Scores) -> NDArray[Any]:
    """Return the labels (n,) of scores (n, outputs)."""
    chosen = (scores[:, 0] > 0).astype(np.intp) if len(classes) == 2 else scores.argmax(axis=1)
    labels: NDArray[Any] = np.asarray(classes)[chosen]
    return labels


def probabilities_of(scores: Scores, link: float, bends: Bends = ()) -> NDArray[np.float64]:
    """Return the probabilities (n, classes) of scores (n, outputs). Written so that no exponential overflows."""
    if scores.shape[1] == 1:
        pieces, moved = pieces_of(link, bends)
        odds = link * scores if not bends else sum(s * np.clip(scores, low, high) for low, high, s in pieces) + moved
        positive = (1.0 + np.tanh(odds / 2)) / 2
        return np.column_stack([1.0 - positive, positive])
    powers = np.exp(link * (scores - scores.max(axis=1, keepdims=True)))
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares
