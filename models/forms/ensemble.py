"""What every form of released model is: frozen numbers that describe, draw and export themselves.

A form is one class in a file of its own, listed in `models.forms.registry`. It says its numbers (JSON), its scores, its
ONNX nodes, its section of the model card, and how it is drawn; whoever loads, serves, exports, edits or shows models
asks the model and never looks at its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from models.explain.explain import PairShape, Row, Shape, pair_shapes, shapes, unit, unused_of
from models.explain.heat import heat_panels
from models.explain.html import panels_page
from models.explain.shapes import importance_panel, shape_panels
from models.explain.vega import to_svg
from models.explain.vega_panels import LIGHT, PAGE, Colours, Panel, gallery
from models.features.features import Feature, RawColumns, encode_columns
from models.onnx.nodes import Graph, Inputs, Namer
from models.onnx.sums import sum_scores, used_by_sums
from models.parts.answers import Bends, ClassLabel, Range, Scores, labels_of, outputs_of, probabilities_of
from models.parts.edits import Edit
from models.parts.pairs import PairTerm
from models.parts.released import FeatureSum

Summary = tuple[dict[str, Any], list[tuple[str, ...]]]


class Ensemble(ABC):
    """A released model (`models.parts.released.Released`) that describes, draws and exports itself."""

    word: ClassVar[str]  # `type` in ensemble.json
    noun: ClassVar[str]  # what the card calls it
    parts: ClassVar[str]  # and what it is made of
    adds_up: ClassVar[bool] = False  # whether `as_sum` gives it
    in_votes: ClassVar[bool] = False  # whether scores are whole votes, and told as such
    score_unit: ClassVar[str | None] = "score"  # what importances are in; None: what `unit` says
    together: ClassVar[str] = "It asks features together. How far each one can move the score:"  # of what is no sum
    nothing: ClassVar[str] = "Of no importance"  # what is said of features that move no score

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...]
    link: float
    bends: Bends = ()
    target_range: Range | None = None
    edits: tuple[Edit, ...] = ()

    @property
    def outputs(self) -> int:
        """Count the scores of a record: 1 for two classes or a number, else one per class."""
        return outputs_of(self.classes)

    def scores(self, columns: RawColumns) -> Scores:
        """Score raw columns: exact integers (n, outputs)."""
        return self.coded_scores(encode_columns(self.features, columns))

    @abstractmethod
    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> Scores:
        """Score codes (features, n), which `encode_columns` makes of columns: (n, outputs)."""

    def probabilities(self, columns: RawColumns) -> NDArray[np.float64]:
        """Return the probabilities (n, classes) for raw columns. InputError where the model answers a number."""
        if not self.classes:
            raise InputError(f"model of {self.target}: answers a number, so it has no probabilities")
        return probabilities_of(self.scores(columns), self.link, self.bends)

    def predict(self, columns: RawColumns) -> NDArray[Any]:
        """Predict labels (n,) from raw columns, or values (n,) of a number."""
        return labels_of(self.classes, self.scores(columns))

    def to_json(self) -> dict[str, Any]:
        """Return the released numbers; `models.forms.registry.ensemble_from_json` reads them."""
        return {
            "type": self.word,
            "target": self.target,
            "classes": list(self.classes),
            "link": self.link,
            "features": [feature.to_json() for feature in self.features],
            **self.numbers(),
        }

    @abstractmethod
    def numbers(self) -> dict[str, Any]:
        """Return what `to_json` says beside the head."""

    @classmethod
    @abstractmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; KeyError, TypeError, ValueError or ModelInvalid where it is not one."""

    # ---- ONNX

    @abstractmethod
    def used_features(self) -> list[int]:
        """Return the positions of the features that a score reads: one at least, so that the graph knows how many rows
        it has.
        """

    @abstractmethod
    def score_graph(self, inputs: Inputs, name: Namer, target: str) -> Graph:
        """Build the nodes that turn raw values into scores: `target` (N, outputs). `name` makes the names of
        intermediate values unique. ModelInvalid where float32 could round a score.
        """

    def contribution_graph(self, inputs: Inputs, name: Namer, target: str) -> tuple[Graph, float] | None:
        """Build the nodes that turn raw values into contributions, `target` (N, features), and return them with the
        base with which a row adds up to its logit or value; None where the form has no contributions.
        """
        return None

    @property
    def largest(self) -> int | None:
        """Return a size that no score can exceed, where the form tells it at once; None where its graph has to."""
        return None

    def fullest(self, features: tuple[Feature, ...]) -> Self:
        """Return a model of as many parts over these features that takes as much room as any such model can: its parts
        ask as many features and codes as they may. What is tried out before a budget is spent on one of that many
        parts.
        """
        return self

    # ---- explained

    def as_sum(self) -> FeatureSum:
        """Return the model, if its scores are sums of what each feature adds by itself; InputError else."""
        raise InputError(
            f"model of {self.target}: its {self.parts.lower()} ask features together, so it has no votes, shapes or "
            "contributions of single ones; it has importances"
        )

    def importances(self) -> dict[str, float]:
        """Return how far each feature can move a score, the most important first; features that move none are left out.
        How often a test holds among people would be a statistic of private data, and plays no part.
        """
        return dict(sorted(((name, size) for name, size in self.sizes().items() if size), key=lambda item: -item[1]))

    @abstractmethod
    def sizes(self) -> dict[str, float]:
        """Return the importance of each feature, in no order; one that moves no score may be 0 or absent."""

    def vote_table(self) -> list[Row]:
        """Return the votes, the heaviest first; those on the same test are added up. InputError without votes."""
        self.as_sum()
        raise InputError(f"model of {self.target}: has terms, not votes; its shapes say what they add")

    def texts(self) -> list[str]:
        """Return its parts as text, for people, where pictures do not show all of it."""
        return []

    @abstractmethod
    def card_section(self) -> str:
        """Return how it decides, in Markdown."""

    def summary(self) -> Summary:
        """Return what the command line tells: parts of a JSON object, and the rows of a table, its head first."""
        features = [{"feature": name, "importance": size} for name, size in self.importances().items()]
        return {"votes": [], "features": features}, self.importance_rows("MOVES THE SCORE BY")

    def importance_rows(self, head: str) -> list[tuple[str, ...]]:
        """Return the importances as a table."""
        return [(head, "FEATURE"), *((f"{size:.4g}", name) for name, size in self.importances().items())]

    # ---- drawn

    def drawing_words(self) -> tuple[str, str]:
        """Return the title of a drawing of the whole model, and what its panels show."""
        return f"What {self.target} rests on", "How far a feature can move the score."

    def panels(self, colours: Colours) -> list[Panel]:
        """Return the panels of a drawing of the whole model: importances, where a form has no better."""
        sizes = self.importances()
        return [importance_panel(f"all {self.parts.lower()}", sizes, "score", colours)] if sizes else []

    def notes(self, claim: str) -> list[str]:
        """Return what stands below the title: `claim`, what the panels show, and which features move nothing."""
        unused = unused_of(self)
        return [claim, self.drawing_words()[1], *([f"{self.nothing}: {', '.join(unused)}."] if unused else [])]

    def svg(self, claim: str) -> str:
        """Return the whole model as one drawing."""
        return to_svg(gallery(self.drawing_words()[0], self.notes(claim), self.panels(LIGHT)))

    def page(self, claim: str) -> str:
        """Return the whole model as one page, which asks for nothing outside."""
        return panels_page(self.drawing_words()[0], self.notes(claim), self.panels(PAGE), self.account())

    def sections(self) -> list[str]:
        """Return HTML of the model's own that stands below the account of one record."""
        return []

    def account(self) -> str:
        """Return HTML that stands below the drawing on the model's page, already escaped."""
        return ""


class SumEnsemble(Ensemble):
    """A form whose scores are sums over features and pairs of them (`models.parts.released.FeatureSum`).

    `tables` and `pairs` say all of it.
    """

    adds_up = True
    score_unit = None
    counts: tuple[tuple[int, ...], ...] = ()
    errors: tuple[tuple[float, ...], ...] = ()
    pairs: tuple[PairTerm, ...] = ()

    @abstractmethod
    def tables(self) -> tuple[list[Scores], Scores]:
        """Return what each feature adds, (bins, outputs) each, and the constant (outputs,): scores = constant + sum_f
        tables[f][code_f], and what the pairs add.
        """

    def coded_scores(self, codes: Sequence[NDArray[Any]]) -> Scores:
        """Score codes (features, n): (n, outputs)."""
        tables, constant = self.tables()
        total = np.tile(constant, (len(codes[0]), 1))
        for table, code in zip(tables, codes, strict=True):
            total += table[code]
        for pair in self.pairs:
            total += pair.table[pair.cells(codes)]
        return total

    def used_features(self) -> list[int]:
        """Return the positions of the features that move a score, or the first position where none does."""
        return used_by_sums(self)

    def score_graph(self, inputs: Inputs, name: Namer, target: str) -> Graph:
        """Build the nodes that turn raw values into scores: `target` (N, outputs)."""
        return sum_scores(self, inputs, name, target)

    def as_sum(self) -> FeatureSum:
        """Return the model itself."""
        return self

    def panels(self, colours: Colours) -> list[Panel]:
        """Return a panel for each feature that moves a score, and for each pair."""
        return [*shape_panels(self, colours, "votes" if self.in_votes else ""), *heat_panels(self, colours)]

    def sizes(self) -> dict[str, float]:
        """Return the importance of each feature; with several classes, the most that it does to one
        (`Shape.importance`).
        """
        sizes: dict[str, float] = {}
        drawn: list[Shape | PairShape] = [*shapes(self), *pair_shapes(self)]
        for shape in drawn:
            sizes[shape.feature] = max(sizes.get(shape.feature, 0.0), shape.importance)
        return sizes

    def summary(self) -> Summary:
        """Return the importances, and every shape bin by bin."""
        body, _ = super().summary()
        drawn = [
            {
                "feature": shape.feature,
                **({"class": shape.label} if self.outputs > 1 else {}),
                "kind": shape.kind,
                "bins": [part.to_json() for part in shape.bins],
            }
            for shape in shapes(self)
        ]
        together = {"pairs": [shape.to_json() for shape in pair_shapes(self)]} if self.pairs else {}
        return {**body, "unit": unit(self), "shapes": drawn, **together}, self.importance_rows(f"ADDS ({unit(self)})")
