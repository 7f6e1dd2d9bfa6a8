"""Figures 3 to 5 of the DP-EBM paper, redone on Adult with our learner: the shapes of all numeric features at epsilon 1
and 4 and nearly without noise, with the noise's own standard error; and the shape of age made monotone.

python -m studies.dpebm.ebm_figures [--data FOLDER] [--out FOLDER]

Benchmark rows are public: accuracies of held-out rows are told here, and nothing that is fitted is released.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from models.edit.editing import EditNote, monotone, to_additive
from models.explain.explain import Shape, errors, shapes, unit
from models.explain.shapes import shape_panel
from models.explain.vega import to_svg
from models.explain.vega_panels import LIGHT, Panel, gallery, reach
from models.features.features import NumericFeature
from models.forms.additive import AdditiveEnsemble
from training.learners.ebm.ebm import DPEBMClassifier

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EPSILONS = ("1", "4", "100")
DELTA = "0.000001"
TOP_AGE, TARGET, POSITIVE = 50, "income", ">50K"
NAMES = ("dpebm-shapes.svg", "dpebm-monotone.svg")

PAGE = """# DP-EBM: the paper's shape functions, redone

Figures 3 to 5 of "Accuracy, Interpretability, and Differential Privacy via Explainable Boosting" on Adult ({rows:,}
rows to fit, {held:,} held out), with our `ebm` at its default settings, delta {delta}, add-remove neighbours. The
healthcare data of the paper's Figures 3 and 4 are not public, so age in Adult stands for age there. One fit each, and
not the best of several: another fit draws other noise. Made by `studies/dpebm/ebm_figures.py`.

## Figure 5: every numeric feature

From left to right: epsilon {epsilons}. One scale in each line. The bands are one and two standard errors of the noise,
worked out from public numbers; the paper's figures have none, and a reader must guess which jags are noise.

![Shapes of the numeric features of Adult]({shapes})

| epsilon | AUROC, held out | typical standard error | steps that the noise could make |
|---|---|---|---|
{lines}

The typical standard error is the median over the bins of all numeric features, in log odds of {positive}. A step is
counted where two neighbouring bins differ by less than twice the root of the sum of their squared errors. Neighbours
share much of their noise, so the noise of a step is smaller than that: the count is an upper bound.

## Figures 3 and 4: age, before and after an edit

In the paper, risk must rise with age, and isotonic regression makes it so. Income does not always rise, so here the
shape may not fall up to {age}, and may not rise above: two edits with `dpserve model edit`, weighted with the released
counts. They read no row and cost no privacy.

![Age as released and as edited]({monotone})

| epsilon | AUROC, as released | AUROC, edited | bins changed |
|---|---|---|---|
{edited}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "examples" / "data", help="folder of Adult's files")
    parser.add_argument("--out", type=Path, default=HERE)
    choices = parser.parse_args()
    train, test = (pq.read_table(choices.data / f"adult_{part}.parquet") for part in ("train", "test"))
    schema = (choices.data / "adult.schema.yaml").read_bytes()
    models = {epsilon: fitted(schema, train, epsilon) for epsilon in EPSILONS}
    mended = {epsilon: rising_then_falling(model) for epsilon, model in models.items()}
    (choices.out / NAMES[0]).write_text(figure_of_shapes(models), "utf-8")
    (choices.out / NAMES[1]).write_text(figure_of_age(models, mended), "utf-8")
    page = PAGE.format(
        rows=train.num_rows,
        held=test.num_rows,
        delta=DELTA,
        epsilons=", ".join(EPSILONS),
        shapes=NAMES[0],
        monotone=NAMES[1],
        positive=POSITIVE,
        age=TOP_AGE,
        lines="\n".join(line(epsilon, model, test) for epsilon, model in models.items()),
        edited="\n".join(edited_line(epsilon, models[epsilon], mended[epsilon], test) for epsilon in EPSILONS),
    )
    (choices.out / "dpebm-figures.md").write_text(page, "utf-8")


def fitted(schema: bytes, train: Any, epsilon: str) -> AdditiveEnsemble:
    learner = DPEBMClassifier(schema=schema, epsilon=epsilon, delta=DELTA)
    learner.fit(train.drop_columns([TARGET]), train[TARGET])
    return to_additive(learner.ensemble_)


def area(model: AdditiveEnsemble, test: Any) -> float:
    columns = {f.name: _values(f, test[f.name]) for f in model.features}
    return float(roc_auc_score(np.array(test[TARGET].to_pylist()) == POSITIVE, model.scores(columns)[:, 0]))


def _values(feature: Any, column: Any) -> NDArray[Any]:
    return np.array(column.to_pylist(), dtype=np.float64 if isinstance(feature, NumericFeature) else object)


def numeric(model: AdditiveEnsemble) -> list[NumericFeature]:
    return [feature for feature in model.features if isinstance(feature, NumericFeature)]


def shape_of(model: AdditiveEnsemble, name: str) -> Shape:
    return next(each for each in shapes(model) if each.feature == name)


def figure_of_shapes(models: dict[str, AdditiveEnsemble]) -> str:
    panels = []
    for feature in numeric(next(iter(models.values()))):
        found = {epsilon: shape_of(model, feature.name) for epsilon, model in models.items()}
        scale = reach([shape.bins for shape in found.values()])
        panels += [_panel(feature, epsilon, shape, scale, unit(models[epsilon])) for epsilon, shape in found.items()]
    notes = [f"From left to right: epsilon {', '.join(models)}."]
    return to_svg(gallery("Adult: every numeric feature", notes, panels))


def _panel(feature: NumericFeature, epsilon: str, shape: Shape, scale: tuple[float, float], of: str) -> Panel:
    named = replace(feature, name=f"{feature.name}, epsilon {epsilon}")
    return shape_panel(named, shape, scale, of, LIGHT)


def rising_then_falling(model: AdditiveEnsemble) -> AdditiveEnsemble:
    note = EditNote(by="benchmark", why="income rises with age to a top, and falls after it")
    rising = monotone(model, "age", "increasing", note, f"..{TOP_AGE}")
    return monotone(rising, "age", "decreasing", note, f"{TOP_AGE}..")


def numeric_feature(model: AdditiveEnsemble, name: str) -> NumericFeature:
    return next(feature for feature in numeric(model) if feature.name == name)


def figure_of_age(models: dict[str, AdditiveEnsemble], mended: dict[str, AdditiveEnsemble]) -> str:
    pairs = {epsilon: (shape_of(models[epsilon], "age"), shape_of(mended[epsilon], "age")) for epsilon in models}
    scale = reach([shape.bins for pair in pairs.values() for shape in pair])
    panels = [
        _panel(numeric_feature(models[epsilon], "age"), f"{epsilon}{said}", pair[at], scale, unit(models[epsilon]))
        for at, said in enumerate((", as released", ", edited"))
        for epsilon, pair in pairs.items()
    ]
    return to_svg(
        gallery("Adult: age as released, and made to rise and then fall", [f"The top is at {TOP_AGE}."], panels)
    )


def line(epsilon: str, model: AdditiveEnsemble, test: Any) -> str:
    noise = errors(model) or []
    known = [noise[at][:-1] for at, f in enumerate(model.features) if isinstance(f, NumericFeature)]
    typical = float(np.median(np.concatenate(known)))
    jags = [doubtful(shape_of(model, feature.name)) for feature in numeric(model)]
    within, steps = (sum(jag[at] for jag in jags) for at in (0, 1))
    return f"| {epsilon} | {area(model, test):.4f} | {typical:.3f} | {within} of {steps} |"


def doubtful(shape: Shape) -> tuple[int, int]:
    """Steps between neighbouring bins that are within twice their joint error, and all steps that there are."""
    votes = np.array([each.votes for each in shape.bins[:-1]])
    noise = np.array([each.error or 0.0 for each in shape.bins[:-1]])
    steps, joint = np.abs(np.diff(votes)), np.hypot(noise[1:], noise[:-1])
    return int(np.sum((steps > 0) & (steps < 2 * joint))), int(np.sum(steps > 0))


def edited_line(epsilon: str, before: AdditiveEnsemble, after: AdditiveEnsemble, test: Any) -> str:
    at = [feature.name for feature in before.features].index("age")
    changed = sum(a != b for a, b in zip(before.terms[at], after.terms[at], strict=True))
    return f"| {epsilon} | {area(before, test):.4f} | {area(after, test):.4f} | {changed} of {len(before.terms[at])} |"


if __name__ == "__main__":
    main()
