"""From estimators to models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from . import _boosted, _forest
from ._errors import ModelError
from ._linear import Linear
from ._model import Finish, Model, bounded, feature_names, in_order, matrix, names_of
from ._network import perceptron
from ._quantise import Uniform
from ._trees import Ensemble, Trees

LINEAR_REGRESSORS = {
    "LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV", "Lars", "LassoLars",
    "BayesianRidge", "ARDRegression", "HuberRegressor", "TheilSenRegressor", "SGDRegressor", "LinearSVR",
    "QuantileRegressor", "OrthogonalMatchingPursuit",
}  # fmt: skip
LINEAR_CLASSIFIERS = {"LogisticRegression", "LogisticRegressionCV"}
MARGIN_CLASSIFIERS = {"LinearSVC", "RidgeClassifier", "RidgeClassifierCV", "SGDClassifier", "Perceptron"}
NETWORKS = {"MLPClassifier", "MLPRegressor"}


def compile(
    estimator: Any,
    X: Any,
    *,
    bits: int | None = None,
    score_bits: int = 16,
    table_bits: int = 14,
    quantise: str = "ranks",
) -> Model:
    """A fitted estimator as a model of integers.

    Parameters
    ----------
    estimator
        A linear model, decision tree, forest, gradient boosting or multi-layer perceptron of scikit-learn; a model of XGBoost or
        LightGBM; or their dumps: XGBoost's JSON (as a dict or the path of a `.json` file), LightGBM's `dump_model()` (the same).
    X
        Rows × features in clear, for the ranges of the features: a sample of the training data.
    bits
        Bits of a feature, at most 16. By default 8; for trees quantised by ranks this is a limit, by default 16.
    score_bits
        Bits of a score (and of a network's sums), at most 16 for networks and 40 otherwise.
    table_bits
        Bits of the widest table of an ensemble of trees: at most 14 on `message14`, 8 on `message8`. Narrower tables take more
        functions and fail less.
    quantise
        For trees: `"ranks"` (a feature becomes the number of thresholds that it is beyond, which loses nothing) or
        `"uniform"` (equal steps over the range in `X`, so that one column serves many models; `fit` makes better ones of few
        bits). All other models are quantised uniformly.

    Raises
    ------
    ModelError
        If the estimator is not supported or not fitted, or its integers do not fit the widths.
    """
    fitted_names = getattr(estimator, "feature_names_in_", None)
    given = names_of(X) if fitted_names is None else tuple(map(str, fitted_names))
    X = matrix(in_order(X, given))
    if not len(X):
        raise ModelError("X has no rows; ranges of features come from a sample")
    model = _compiled(estimator, X, bits, score_bits, table_bits, quantise)
    model.given = given
    return model


def _compiled(estimator: Any, X: np.ndarray, bits: int | None, score_bits: int, table_bits: int, quantise: str) -> Model:
    if quantise not in ("ranks", "uniform"):
        raise ModelError(f"quantise must be 'ranks' or 'uniform', not {quantise!r}")
    _refuse_class(estimator)
    kind = "dump" if isinstance(estimator, (Mapping, str, PathLike)) else type(estimator).__name__
    bounded("table_bits", table_bits, 2, 16)
    bounded("score_bits", score_bits, 1, 16 if kind in NETWORKS else 40)

    if kind in LINEAR_REGRESSORS | LINEAR_CLASSIFIERS | MARGIN_CLASSIFIERS:
        return _linear(kind, estimator, X, _bits(bits, 8), score_bits)
    if kind in NETWORKS:
        return _perceptron(kind, estimator, X, _bits(bits, 8), score_bits)
    found = _boosted.from_dump(_read(estimator), X.shape[1]) if kind == "dump" else _ensemble(kind, estimator, X)
    if found is None:
        raise ModelError(
            f"{kind} is not supported; linear models, decision trees, forests, gradient boosting and multi-layer "
            "perceptrons of scikit-learn are, and models of XGBoost and LightGBM"
        )
    if len(found.features) != X.shape[1]:
        raise ModelError(f"{found.kind} was fitted on {len(found.features)} features, and X has {X.shape[1]}")
    bits = _bits(bits, 16 if quantise == "ranks" else 8)
    return Trees(found, _steps(X, bits) if quantise == "uniform" else None, False, bits, score_bits, table_bits)


def fit(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    bits: int = 8,
    score_bits: int = 16,
    table_bits: int = 14,
    **options: Any,
) -> Model:
    """Quantises features, fits trees on the integers, and compiles them.

    The features become integers in equal steps over their ranges in `X`, as with `quantise="uniform"`. Since training sees these
    integers, every threshold lies between two of them, and the model is right on as many rows as the estimator is: with few
    bits on more than one that was fitted on `X` and quantised afterwards.

    Parameters
    ----------
    estimator
        A decision tree, forest or gradient boosting of scikit-learn, or a model of XGBoost or LightGBM by its interface of
        scikit-learn. It is fitted here, on rows × features of integers.
    X
        Rows × features in clear.
    y
        What to learn of each row.
    bits
        Bits of a feature, at most 16.
    score_bits, table_bits
        As `compile` has them.
    options
        More for the estimator's own `fit`, such as `sample_weight`.

    Raises
    ------
    ModelError
        If the estimator is not supported, or its integers do not fit the widths.
    """
    _refuse_class(estimator)
    kind = type(estimator).__name__
    is_boosted = type(estimator).__module__.partition(".")[0] in ("xgboost", "lightgbm") and hasattr(estimator, "fit")
    if not is_boosted and kind not in _forest.KINDS:
        raise ModelError(f"{kind} is not fitted here: trees and their ensembles are; fit it yourself, and call compile")
    given = names_of(X)
    X = matrix(in_order(X, given))
    names = feature_names(given, X.shape[1])
    if not len(X):
        raise ModelError("X has no rows to fit on")
    bounded("bits", bits, 1, 16)
    bounded("table_bits", table_bits, 2, 16)
    bounded("score_bits", score_bits, 1, 40)
    steps = _steps(X, bits)
    codes = np.stack([quantiser.encode(X[:, j]) for j, quantiser in steps.items()], axis=1)
    estimator.fit(codes, y, **options)
    found = _ensemble(kind, estimator, codes)
    assert found is not None
    found.features = names
    model = Trees(found, steps, True, bits, score_bits, table_bits)
    model.given = given
    return model


def _refuse_class(estimator: Any) -> None:
    """Refuses a class in the place of an estimator of it."""
    if isinstance(estimator, type):
        raise ModelError(f"{estimator.__name__} is a class: give an estimator of it")


def _ensemble(kind: str, estimator: Any, X: np.ndarray) -> Ensemble | None:
    return _forest.read(kind, estimator, X) or _boosted.read(kind, estimator, X.shape[1])


def _steps(X: np.ndarray, bits: int) -> dict[int, Uniform]:
    """How every feature becomes an integer of so many bits."""
    return {j: Uniform.fit(X[:, j], bits) for j in range(X.shape[1])}


def _bits(bits: int | None, default: int) -> int:
    bits = default if bits is None else bits
    bounded("bits", bits, 1, 16)
    return bits


def _read(dump: Any) -> Mapping[str, Any]:
    if isinstance(dump, Mapping):
        return dump
    try:
        found = json.loads(Path(dump).read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"{dump} is not a model in JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{dump} is not a model in JSON")
    return found


def fitted(kind: str, estimator: Any, attribute: str) -> Any:
    """An attribute that fitting makes."""
    found = getattr(estimator, attribute, None)
    if found is None:
        raise ModelError(f"this {kind} is not fitted; call fit first")
    return found


def _features(kind: str, estimator: Any, X: np.ndarray) -> list[str]:
    count = fitted(kind, estimator, "n_features_in_")
    if count != X.shape[1]:
        raise ModelError(f"{kind} was fitted on {count} features, and X has {X.shape[1]}")
    return feature_names(getattr(estimator, "feature_names_in_", None), count)


def _linear(kind: str, estimator: Any, X: np.ndarray, bits: int, score_bits: int) -> Model:
    coefficients = np.atleast_2d(np.asarray(fitted(kind, estimator, "coef_"), np.float64))
    features = _features(kind, estimator, X)
    intercept = np.broadcast_to(np.asarray(estimator.intercept_, np.float64), (len(coefficients),))
    classes = None if kind in LINEAR_REGRESSORS else estimator.classes_
    link = "identity" if classes is None else "logistic" if len(coefficients) == 1 else "softmax"
    if kind in MARGIN_CLASSIFIERS:
        link = "margin"
    if kind in LINEAR_CLASSIFIERS and link == "softmax" and estimator.solver == "liblinear":
        link = "margin"
    return Linear(kind, features, _steps(X, bits), coefficients, intercept, score_bits, link, classes)


def _perceptron(kind: str, estimator: Any, X: np.ndarray, bits: int, score_bits: int) -> Model:
    weights = fitted(kind, estimator, "coefs_")
    features = _features(kind, estimator, X)
    classes = None if kind == "MLPRegressor" else estimator.classes_
    outputs = estimator.n_outputs_
    link = {"identity": "identity", "logistic": "logistic", "softmax": "softmax"}.get(estimator.out_activation_)
    if link is None or (link == "logistic" and outputs > 1):
        raise ModelError(f"{kind} with {outputs} outputs and {estimator.out_activation_} is not supported; take one label a row")
    finish = Finish(np.ones(outputs), np.zeros(outputs), link, classes)
    return perceptron(
        kind, features, X, weights, estimator.intercepts_, estimator.activation, bits, score_bits, finish
    )
