"""Trees, forests and gradient boosting of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._errors import ModelError
from ._model import Finish, feature_names
from ._trees import Ensemble, Tree

TREES = {"DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"}
FORESTS = {"RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor"}
BOOSTED = {"GradientBoostingClassifier", "GradientBoostingRegressor"}
HISTOGRAM = {"HistGradientBoostingClassifier", "HistGradientBoostingRegressor"}
KINDS = TREES | FORESTS | BOOSTED | HISTOGRAM


def read(kind: str, estimator: Any, X: np.ndarray) -> Ensemble | None:
    """The ensemble of an estimator of scikit-learn, or None if it is no such one."""
    if kind not in KINDS:
        return None
    attribute = "tree_" if kind in TREES else "_predictors" if kind in HISTOGRAM else "estimators_"
    if getattr(estimator, attribute, None) is None:
        raise ModelError(f"this {kind} is not fitted; call fit first")
    names = feature_names(getattr(estimator, "feature_names_in_", None), estimator.n_features_in_)
    classes = estimator.classes_ if kind.endswith("Classifier") else None
    if kind in HISTOGRAM:
        trees, finish = _histogram(kind, estimator, classes)
        return Ensemble(kind, trees, finish, names, strict=False, dtype=np.float64)
    if kind in BOOSTED:
        trees, finish = _boosted(kind, estimator, X, classes)
    else:
        trees, finish = _average(kind, [estimator] if kind in TREES else estimator.estimators_, estimator, classes)
    return Ensemble(kind, trees, finish, names, strict=False, dtype=np.float32)


def _tree(fitted: Any, value: np.ndarray) -> Tree:
    return Tree(fitted.feature, fitted.threshold, fitted.children_left, fitted.children_right, value)


def _average(kind: str, members: Any, estimator: Any, classes: Any) -> tuple[list[Tree], Finish]:
    if estimator.n_outputs_ != 1:
        raise ModelError(f"{kind} with {estimator.n_outputs_} outputs is not supported; fit one model for each")
    trees = []
    for member in members:
        value = member.tree_.value[:, 0, :]
        if classes is not None:
            value = value / value.sum(axis=1, keepdims=True)
            # One probability is enough of two.
            value = value[:, 1:] if len(classes) == 2 else value
        trees.append(_tree(member.tree_, value / len(members)))
    outputs = trees[0].value.shape[1]
    link = "identity" if classes is None else "probability"
    return trees, Finish(np.ones(outputs), np.zeros(outputs), link, classes)


def _place(value: np.ndarray, k: int, outputs: int) -> np.ndarray:
    placed = np.zeros((len(value), outputs))
    placed[:, k] = value
    return placed


def _boosted(kind: str, estimator: Any, X: np.ndarray, classes: Any) -> tuple[list[Tree], Finish]:
    if estimator.init is not None and estimator.init != "zero":
        raise ModelError(f"{kind} with an initial estimator of its own is not supported; take init=None or 'zero'")
    outputs = estimator.estimators_.shape[1]
    trees = [
        _tree(member.tree_, _place(estimator.learning_rate * member.tree_.value[:, 0, 0], k, outputs))
        for stage in estimator.estimators_
        for k, member in enumerate(stage)
    ]
    offset = np.asarray(estimator._raw_predict_init(X[:1].astype(np.float32)), np.float64).reshape(outputs)
    link = _boosted_link(classes, outputs)
    if classes is not None and estimator.loss == "exponential":
        # The exponential loss has half the margin of the logistic one.
        return [_tree_scaled(tree, 2.0) for tree in trees], Finish(np.ones(1), 2 * offset, link, classes, tie=1)
    return trees, Finish(np.ones(outputs), offset, link, classes, tie=1)


def _tree_scaled(tree: Tree, factor: float) -> Tree:
    return Tree(tree.feature, tree.threshold, tree.left, tree.right, factor * tree.value)


def _boosted_link(classes: Any, outputs: int) -> str:
    return "identity" if classes is None else "logistic" if outputs == 1 else "softmax"


def _histogram(kind: str, estimator: Any, classes: Any) -> tuple[list[Tree], Finish]:
    outputs = len(estimator._predictors[0])
    if getattr(estimator, "loss", None) in ("poisson", "gamma"):
        raise ModelError(f"{kind} with the loss {estimator.loss} is not supported; take squared_error or absolute_error")
    trees = []
    for stage in estimator._predictors:
        for k, predictor in enumerate(stage):
            nodes = predictor.nodes
            leaf = nodes["is_leaf"].astype(bool)
            if nodes["is_categorical"][~leaf].any():
                raise ModelError(f"{kind} with categorical features is not supported; encode them as numbers before fitting")
            left = np.where(leaf, -1, nodes["left"].astype(np.int64))
            right = np.where(leaf, -1, nodes["right"].astype(np.int64))
            feature = nodes["feature_idx"].astype(np.int64)
            trees.append(Tree(feature, nodes["num_threshold"], left, right, _place(nodes["value"], k, outputs)))
    offset = np.asarray(estimator._baseline_prediction, np.float64).reshape(outputs)
    return trees, Finish(np.ones(outputs), offset, _boosted_link(classes, outputs), classes)
