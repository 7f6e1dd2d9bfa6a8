"""What scikit-learn asks of an estimator, without loading scikit-learn: a plan needs parameters and public rules alone,
and loading it takes longer than all the rest. What only scikit-learn calls, or fits, loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import Any, ClassVar, Self

from training.learners.base.checks import check_absent


def parameters_of(estimator: type) -> dict[str, Parameter]:
    """Return the arguments of a class of estimators, by name: of its `__init__`, for the signature of the class is that
    of `__new__` before Python 3.11.5."""
    arguments = signature(estimator.__init__).parameters  # type: ignore[misc]  # of the class itself, as it says
    return {name: argument for name, argument in arguments.items() if name != "self"}


class Estimator:
    """An estimator by its protocol ("Developing scikit-learn estimators"): parameters are the arguments of the
    constructor, kept under their names."""

    _mixin: ClassVar[str] = ""  # of sklearn.base, whose tags it has
    _weight_requests: Mapping[str, bool | str | None] = {}  # method -> whether scikit-learn hands it `sample_weight`

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return every parameter by its name; none holds an estimator, so `deep` changes nothing."""
        return {name: getattr(self, name) for name in sorted(parameters_of(type(self)))}

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Make one that `__init__` fills. InputError for a parameter that a private estimator cannot have."""
        check_absent(params)
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Self:
        """Change parameters. ValueError for one that there is not."""
        current = self.get_params()
        check_absent(params)
        for name, value in params.items():
            if name not in current:
                raise ValueError(f"Invalid parameter {name!r} for {type(self).__name__}; there are {sorted(current)}")
            setattr(self, name, value)
        return self

    def get_metadata_routing(self) -> Any:
        """Return what `fit` and `score` take of what a Pipeline or a search is given beside X and y."""
        from sklearn.utils.metadata_routing import MetadataRequest  # only scikit-learn asks for it

        request = MetadataRequest(owner=self)
        for method in ("fit", "score"):
            getattr(request, method).add_request(param="sample_weight", alias=self._weight_requests.get(method))
        return request

    def set_fit_request(self, *, sample_weight: bool | str | None) -> Self:
        """Ask scikit-learn, where metadata routing is on, to hand weights of rows to `fit`, by this name."""
        self._weight_requests = {**self._weight_requests, "fit": sample_weight}
        return self

    def set_score_request(self, *, sample_weight: bool | str | None) -> Self:
        """Ask the same for `score`."""
        self._weight_requests = {**self._weight_requests, "score": sample_weight}
        return self

    def __sklearn_clone__(self) -> Self:
        from sklearn.base import clone  # only scikit-learn asks for it

        twin = type(self)(**{name: clone(value, safe=False) for name, value in self.get_params().items()})
        twin._weight_requests = self._weight_requests
        return twin

    def __sklearn_tags__(self) -> Any:
        from sklearn import base  # only scikit-learn asks for it

        return type("Tagged", (getattr(base, self._mixin), base.BaseEstimator), {})().__sklearn_tags__()

    def _make_convertible(self) -> None:
        """Let skl2onnx convert what was fitted, wherever it stands in a Pipeline, where it is installed."""
        if find_spec("skl2onnx") is not None:
            from models.onnx.from_sklearn import register  # loads skl2onnx, which an extra brings

            register(type(self))


class Classifier(Estimator):
    """What classifiers have besides."""

    _mixin = "ClassifierMixin"
    _estimator_type = "classifier"

    def onnx_parser(self) -> Any:
        """Return what declares the outputs of a converted classifier: skl2onnx asks for it."""
        from models.onnx.from_sklearn import answers_of_classifier  # loads skl2onnx, which an extra brings

        return answers_of_classifier


class Regressor(Estimator):
    """What regressors have besides."""

    _mixin = "RegressorMixin"
    _estimator_type = "regressor"
