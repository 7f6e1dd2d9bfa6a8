"""What every learner is: a scikit-learn estimator whose `learn(session)` is its only way to rows.

Alone in a notebook a learner carries its own budget: `fit` rehearses, plays, and refuses a second time. With an
`account` every fit is charged there first, so that it may fit again, and so may its clones, until the account is used
up. On the platform `training.jobs.job` drives the same `learn` with a plan that the ledger has reserved.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from decimal import Decimal
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from accountant.privacy.claims import BOUNDS, Claim
from accountant.system.lazy_import import later, load
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import Budget, Relation, parse_relation
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.weights import relation_fault
from models.features.features import RawColumns
from models.features.reading import ALL
from models.forms.ensemble import Ensemble
from models.parts.answers import sorted_places
from training.calibration.calibrate import calibrate
from training.calibration.plan_warnings import PublicWarning, check_exportable, too_many_rounds, warnings_of
from training.calibration.would_fit import would_fit
from training.learners.base.checks import OWN, read_budget, read_parameter
from training.learners.base.estimator import Classifier, Estimator, Regressor, parameters_of
from training.learners.base.pipelines import check_steps_before, rows_before_steps
from training.learners.base.shown import Shown
from training.rows.schema.column_rules import Columns
from training.rows.schema.schema import Schema, parse_schema
from training.session.learner import Recipe
from training.session.session import Public, Releaser, Session

if TYPE_CHECKING:
    import pyarrow as pa

    from models.features import column_law
    from training.rows.partitions.rows import Rows
    from training.rows.tables import data, frames, selections
else:
    # what reads frames: a plan does without
    column_law = later("models.features.column_law")
    data, frames = later("training.rows.tables.data"), later("training.rows.tables.frames")
    selections = later("training.rows.tables.selections")

SPENDS = (
    "clones of one estimator were fitted several times, as cross-validation and searches do. Each fit costs its own "
    "epsilon, and about the same people they add up: a dpserve.learners.Account adds them up and holds them to a total"
)


_BEGIN = Lock()  # of all estimators together: whether a budget is unspent and that it now is spent are one step


class Account(Protocol):
    """Total that fits are charged to: `training.notebook.notebook_budget.Account`."""

    @property
    def rowwise(self) -> bool:
        """Return whether its owner vouches that it depends, for each row, on that row alone what a fit gets of it."""

    def check(self, budget: Budget, relation: Relation) -> None:
        """Raise InputError where a fit promises otherwise than the total."""

    def look_ahead(self) -> None:
        """Raise where a clone is made for a search whose fits would not all be paid; say what they cost."""

    def admits(self, plan: Plan) -> bool:
        """Return whether a plan fits into what is left."""

    def charge(
        self, plan: Plan, rows: selections.Selection | None = None, weighed: selections.Selection | None = None
    ) -> None:
        """Charge a plan on these rows, or raise."""

    def words(self) -> str:
        """Say what is left."""

    def to_json(self) -> dict[str, Any]:
        """Return what is left, as an error's details have it."""


class Publisher(Protocol):
    """Trains a learner anew in a home: `training.notebook.publishing`."""

    def publish(self, learner: PrivateLearner, folder: Path, dataset: str, model: str | None) -> dict[str, Any]:
        """Return the job, as `PrivateLearner.publish` does."""


class SpendWarning(UserWarning):
    """Clones were fitted without an account: nobody adds up what they cost together."""


@dataclass(eq=False, repr=False)
class PrivateLearner(Shown, Estimator, ABC):
    """What private classifiers and regressors share. A subclass is a dataclass whose fields are its parameters.

    `schema`: a Schema, a rule (Columns), or the path or bytes of a schema file; (epsilon, delta) and `relation` as
    declared, for each fit; `account`: what to charge each fit to (None: one fit, on its own budget). `features`: names
    of those to learn from, `without`: of those to leave out, in a list or in one text with commas: the model reads no
    other. A choice that looks at rows is none of these: what it says of them was never paid for.

    Attributes after `fit`: `ensemble_` (the released numbers), `recipe_` (plan, unit, claim), `spent_` (the claim),
    `schema_`, `n_features_in_`, `feature_names_in_` where X named its columns.
    """

    name: ClassVar[str]
    publisher: ClassVar[Publisher | None] = None  # training.notebook puts it here: it knows jobs, which know learners
    _kin = None  # type: list[Claim] | None  # what this estimator, its clones and theirs cost so far

    _: KW_ONLY
    schema: object = None
    epsilon: object = 1
    delta: object = "0.000001"
    relation: str = "add-remove"
    account: Account | None = None
    features: object = ALL
    without: object = ""

    def check(self, public: Public) -> None:
        """Raise InputError where a parameter or the schema does not fit this learner."""

    @abstractmethod
    def learn(self, session: Releaser) -> Ensemble:
        """Release, go on with what came back, return what was released."""

    @abstractmethod
    def _answers(self, y: Any, schema: Schema) -> pa.Array:
        """Return what is to be learnt, as a column; InputError where the schema's target is of another kind."""

    @abstractmethod
    def rounds_for(self, public: Public) -> int:
        """Return the rounds of the plan, by the parameters or the public rule."""

    def recipe(self, public: Public, bounds: tuple[str, ...] = BOUNDS) -> Recipe:
        """Check, rehearse and calibrate to the public budget. A plan whose model could not be exported is refused.

        `bounds`: those that a claim may come from.
        """
        self.check(public)
        try:
            recipe = calibrate(self, public, public.budget, self.guess(public), bounds)
        except InputError as error:
            raise too_many_rounds(self, public) or error from None
        check_exportable(self, public, recipe.blank)
        return replace(recipe, blank=None)

    def is_listed_for(self, public: Public) -> bool:
        """Return whether it does for such a job what no other learner does, so that a list has it."""
        return True

    def guess(self, public: Public) -> Decimal | None:
        """Return a unit near the one that calibration looks for, where the learner knows one: saves dear rehearsals."""
        return None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PrivateLearner:
        """Spend the declared budget on (X, y). X: a frame with the schema's columns, or an array with as many, in their
        order; y: class labels, or numbers (n,). sample_weight: what each row weighs (n,), where the schema says the
        most that one may.

        BudgetRefused where there is no budget left. Nothing is spent by a fit that is refused.
        """
        self._require_unspent()
        if self.account is None or not self.account.rowwise:
            check_steps_before(self)
        whose_rows = rows_before_steps(self, X)
        schema, public, rows = self.declared(X, y, sample_weight)
        recipe = self.recipe(public)
        for text in warnings_of(self, public, recipe):
            warnings.warn(text, PublicWarning, stacklevel=2)
        session = Session(public, recipe.unit, recipe.plan, rows)
        with _BEGIN:
            self._require_unspent()
            self._charge(public, recipe, whose_rows, sample_weight)
            self._begin(schema, recipe, named=frames.is_frame(X))
        self.ensemble_ = self.learn(session)
        session.close()
        self._make_convertible()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a copy, or of a pickle: what was fitted can be converted here as well."""
        self.__dict__.update(state)
        if "ensemble_" in state:
            self._make_convertible()

    def _read_texts(self) -> None:
        """Read numbers that were given as texts, or as floats without a fraction, as every other door does. What means
        no number stays as it is, and `check` refuses it.
        """
        kinds, defaults = parameters_of(type(self)), type(self)().get_params()
        for name, value in self.get_params().items():
            default = defaults[name]
            if isinstance(value, str | float | Decimal) and name not in OWN and not isinstance(default, str):
                with suppress(InputError):
                    read = read_parameter(name, value, default, "float" in str(kinds[name].annotation))
                    if type(read) is not type(value):  # what fits already is left alone, as scikit-learn asks of `fit`
                        setattr(self, name, read)

    def declared(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Schema, Public, Rows]:
        """Read (X, y) by the declared schema: the schema, what is public of it, and packed rows. Spends nothing.

        InputError where a parameter does not fit; a ValueError as scikit-learn's where X or y does not.
        """
        self._read_texts()
        who, rule = type(self).__name__, self._rule()
        with frames.value_errors():
            table = frames.table_from(X, rule, who)
            schema = self._schema(table)
            public = self.public_facts(schema)
            self.check(public)
            read = schema.reading(self.features, self.without)
            table = frames.weighed_table(table, sample_weight, schema)
            return schema, public, data.rows_of(read, table, self._answers(y, schema), public.relation)

    def recipe_ahead(self, X: Any, rows: int | None = None) -> tuple[Public, Recipe]:
        """Return what would be public of a fit to X, or to so many rows of it, and its recipe. No value is read."""
        self._read_texts()
        with frames.value_errors():
            table = frames.table_from(X, self._rule(), type(self).__name__)
            public = self.public_facts(self._schema(table.slice(0, rows)))
            return public, self.recipe(public)

    def _require_unspent(self) -> None:
        if self.account is None and hasattr(self, "recipe_"):
            raise BudgetRefused(
                "fit: this estimator has spent its budget. Make it anew in the same cell, which costs its epsilon "
                "again, or give it account=Account(epsilon=...) of dpserve.learners, which adds up what fits cost"
            )

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels (n,), or numbers (n,) float64 within the public range."""
        return self._released().predict(self._columns(X))

    @property
    def spent_(self) -> Claim:
        """Return what the last fit cost by itself: (epsilon, delta)."""
        claimed: Claim = self.recipe_.claim
        return claimed

    def publish(self, home: str | Path, dataset: str, model: str | None = None) -> dict[str, Any]:
        """Train it anew in a home, by the same parameters and budget, from a dataset that is registered there: charged
        to its account, certified, in the ledger. What was fitted here has none of that, and stays here.

        model: its name there; the dataset's when left out. Returns the job, as `dpserve train --json` does. InputError
        where the dataset's columns or answers are not those of this fit.
        """
        if self.publisher is None:
            raise InputError(
                "publish: needs what runs jobs; `from dpserve.learners import LazyBB` first, which brings it"
            )
        return self.publisher.publish(self, Path(home), dataset, model)

    def _charge(self, public: Public, recipe: Recipe, X: Any, sample_weight: Any) -> None:
        """Pay for the fit, or raise BudgetRefused with what would fit."""
        if self.account is None:
            if self._kin:
                warnings.warn(SPENDS, SpendWarning, stacklevel=3)
            if self._kin is not None:
                self._kin.append(recipe.claim)
            return
        self.account.check(public.budget, public.relation)
        if not self.account.admits(recipe.plan):
            fits = would_fit(self, public, self.account.admits, recipe.unit)
            advice = "nothing more fits" if fits is None else f"epsilon {fits} would fit"
            raise BudgetRefused(
                f"account: epsilon {public.budget.epsilon} does not fit: {self.account.words()}; "
                f"by this learner, {advice}",
                **self.account.to_json(),
                would_fit=None if fits is None else {"epsilon": str(fits)},
            )
        words = selections.row_words(X)
        weighed = None if sample_weight is None else selections.Selection.of(selections.weigh(words, sample_weight))
        self.account.charge(recipe.plan, selections.Selection.of(words), weighed)

    def _begin(self, schema: Schema, recipe: Recipe, named: bool) -> None:
        """Begin a fit: the budget is spent even if what follows fails, and nothing of an earlier fit remains."""
        self.__dict__.pop("ensemble_", None)
        self.__dict__.pop("feature_names_in_", None)
        self.recipe_, self.schema_ = recipe, schema
        self.n_features_in_ = len(schema.features)
        if named:
            self.feature_names_in_ = np.array([feature.name for feature in schema.features], dtype=object)

    def _released(self) -> Ensemble:
        if not hasattr(self, "ensemble_"):
            raise frames.unfitted_error(f"predict: this {type(self).__name__} is not fitted yet")
        return self.ensemble_

    def __sklearn_clone__(self) -> Self:
        """Return a clone, whose fit is a new release. It knows its kin, so that what they cost together does not go
        unsaid.
        """
        if self.account is not None:
            self.account.look_ahead()
        twin = super().__sklearn_clone__()
        self._kin = twin._kin = [] if self._kin is None else self._kin
        return twin

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ensemble_")

    def __sklearn_tags__(self) -> Any:
        """Mark the learner as not deterministic, because of its noise, and missing values as allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.non_deterministic = True
        return tags

    def _columns(self, X: Any) -> RawColumns:
        """Read X into columns for the released ensemble's own encoder, by the schema of `fit`."""
        who = type(self).__name__
        if hasattr(self, "feature_names_in_") and not frames.is_frame(X):
            warnings.warn(f"X does not have valid feature names, but {who} was fitted with feature names", stacklevel=3)
        with frames.value_errors():
            rule: Schema | Columns = self.schema_
            if isinstance(self.schema, Columns) and self.schema.ignore:  # an array has these columns too
                rule = self.schema
            return data.columns_of(self.schema_, frames.table_from(X, rule, who))

    def _rule(self) -> Schema | Columns:
        """Return what was declared: a schema, or the rule that makes one from the names of columns."""
        if isinstance(self.schema, Schema | Columns):
            return self.schema
        if isinstance(self.schema, bytes):
            return parse_schema(self.schema)
        if self.schema is None:
            raise InputError(
                "schema=None: say what columns may hold, never from the rows: by a rule, schema=Columns(low=0, high=1, "
                'classes=["no", "yes"]) of dpserve.learners, or by a schema file, schema="people.yaml"'
            )
        with open(str(self.schema), "rb") as file:
            return parse_schema(file.read())

    def _schema(self, table: pa.Table | None = None) -> Schema:
        """Return the declared schema; of a rule, what it says of this table. The number of rows counts where it is
        public.
        """
        rule = self._rule()
        if isinstance(rule, Schema):
            return rule
        if table is None:
            raise InputError("schema: a rule has no columns before `fit`; write rule.schema(names)")
        public_count = len(table) if self.relation == Relation.REPLACE_ONE else None
        return rule.schema(table.column_names, public_count)

    def public_facts(self, schema: Schema | None = None) -> Public:
        """Return what anybody may know of a fit: the schema as it is read, the relation and the budget. Reads no row.

        InputError where a parameter is no budget or no relation.
        """
        schema, budget = schema or self._schema(), read_budget(self.epsilon, self.delta)
        budget.check_delta(schema.records)
        relation = parse_relation(self.relation)
        if schema.weight is not None and (fault := relation_fault(relation)):
            raise InputError(fault)
        read = schema.reading(self.features, self.without)
        return Public.of(read, relation, budget, pure=budget.delta == 0)


class PrivateClassifier(Classifier, PrivateLearner):
    """Base of private classifiers. After `fit` they also have `classes_`, the declared ones, sorted, as scikit-learn
    takes them to be; chances and scores have their order. What is released keeps the declared one.

    On the platform, where a job fits whatever its schema declares, one that can may fit a number as well: `learn` and
    `check` read `public.classes`, and only `fit` here is for labels alone.
    """

    @property
    def classes_(self) -> NDArray[Any]:
        """Return the declared classes (k,), sorted."""
        declared = self._declared_classes
        return declared[sorted_places(declared)]

    @property
    def _declared_classes(self) -> NDArray[Any]:
        """Return the declared classes (k,), in their order."""
        classes = np.asarray(self._released().classes)
        return classes == str(True) if self._has_truths else classes

    @property
    def _has_truths(self) -> bool:
        """Return whether labels are False and True, as declared by a rule."""
        return isinstance(self.schema, Columns) and self.schema.has_truths

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels (n,), as they were declared."""
        labels = super().predict(X)
        return labels == str(True) if self._has_truths else labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, classes), in the order of `classes_`; every row sums to 1."""
        released = self._released()
        return released.probabilities(self._columns(X))[:, sorted_places(released.classes)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the mean accuracy of `predict(X)` against y, which is read as `fit` reads it: rows that it would leave
        out do not count.
        """
        said = self.predict(X)
        with frames.value_errors():
            true = data.encode_labels(self.schema_, self._answers(y, self.schema_))
        there = data.has_answer(true)
        weights = None if sample_weight is None else np.asarray(sample_weight)[there]
        return float(np.average(said[there] == self._declared_classes[true[there]], weights=weights))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores to rank by: (n,) for two classes, above 0 for `classes_[1]`; else (n, classes)."""
        released = self._released()
        scores, places = np.asarray(released.scores(self._columns(X)), np.float64), sorted_places(released.classes)
        if scores.size == len(scores):
            return scores.reshape(len(scores)) * (1 if places[1] else -1)
        return scores[:, places]

    def _answers(self, y: Any, schema: Schema) -> pa.Array:
        if schema.classes is None:
            raise InputError(f"classes: the target {schema.target!r} is a number; {type(self).__name__} learns classes")
        return frames.label_column(y, schema, type(self).__name__)

    def __sklearn_tags__(self) -> Any:
        """Mark the classifier as binary where two classes are declared."""
        tags = super().__sklearn_tags__()
        classes = self.schema.classes if isinstance(self.schema, Schema | Columns) else None
        tags.classifier_tags.multi_class = classes is None or len(classes) > 2
        return tags


class PrivateRegressor(Regressor, PrivateLearner):
    """Base of private regressors: the schema's target has a public `range`, to which targets are clipped. `predict`
    answers within it, and `score` is R^2.
    """

    def _answers(self, y: Any, schema: Schema) -> pa.Array:
        if schema.target_range is None:
            raise InputError(f"range: the target {schema.target!r} has classes; {type(self).__name__} learns a number")
        return frames.target_column(y, type(self).__name__)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of `predict(X)` against y, which is read as `fit` reads it: rows that it would leave out do not
        count.
        """
        said = self.predict(X)
        with frames.value_errors():
            true = column_law.read_numbers(self._answers(y, self.schema_))
        there = ~np.isnan(true) | (not self.schema_.only.leave_out)
        weights = None if sample_weight is None else np.asarray(sample_weight)[there]
        return float(load("sklearn.metrics").r2_score(true[there], said[there], sample_weight=weights))

    def __sklearn_tags__(self) -> Any:
        """Mark the score as poor: few rows and much noise make it so."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags
