"""Models of XGBoost and LightGBM, from their dumps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._errors import ModelError
from ._model import Finish, feature_names
from ._trees import Ensemble, Tree


def read(kind: str, estimator: Any, count: int) -> Ensemble | None:
    """The ensemble of an object of XGBoost or LightGBM, or None if it is no such one."""
    module = type(estimator).__module__.partition(".")[0]
    if module not in ("xgboost", "lightgbm"):
        return None
    classes = None
    if kind != "Booster":
        try:
            booster = estimator.get_booster() if module == "xgboost" else estimator.booster_
        except Exception as error:
            raise ModelError(f"this {kind} is not fitted; call fit first") from error
        classes = getattr(estimator, "classes_", None)
        if module == "xgboost" and booster.attr("best_iteration") is not None:
            booster = booster[: int(booster.attr("best_iteration")) + 1]
    else:
        booster = estimator
    dump = json.loads(booster.save_raw("json")) if module == "xgboost" else booster.dump_model()
    ensemble = from_dump(dump, count)
    ensemble.kind = kind
    if classes is not None and ensemble.finish.classes is not None:
        finish = ensemble.finish
        ensemble.finish = Finish(finish.scale, finish.offset, finish.link, np.asarray(classes), finish.tie)
    return ensemble


def from_dump(dump: Mapping[str, Any], count: int) -> Ensemble:
    """The ensemble of XGBoost's JSON or LightGBM's `dump_model()`."""
    try:
        if "learner" in dump:
            return _xgboost(dump["learner"], count)
        if "tree_info" in dump:
            return _lightgbm(dump)
    except (KeyError, IndexError, TypeError) as error:
        raise ModelError(f"the dump lacks a field that a model has: {error}") from error
    raise ModelError("the dump is neither XGBoost's JSON (save_model) nor LightGBM's dump_model()")


def _finish(link: str, outputs: int, offset: np.ndarray) -> Finish:
    classes = None if link == "identity" else np.arange(2 if link == "logistic" else outputs)
    return Finish(np.ones(outputs), offset, link, classes)


def _xgboost(learner: Mapping[str, Any], count: int) -> Ensemble:
    objective = learner["objective"]["name"]
    links = {"binary:logistic": "logistic", "multi:softprob": "softmax", "multi:softmax": "softmax"}
    identity = {"reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror", "binary:logitraw"}
    if objective not in links and objective not in identity:
        raise ModelError(f"XGBoost's objective {objective} is not supported; {', '.join([*links, *sorted(identity)])} are")
    booster = learner["gradient_booster"]
    if booster["name"] != "gbtree":
        raise ModelError(f"XGBoost's booster {booster['name']} is not supported; take gbtree")
    parameters, link = learner["learner_model_param"], links.get(objective, "identity")
    outputs = max(int(parameters["num_class"]), int(parameters.get("num_target", 1)), 1)
    base = np.broadcast_to(np.atleast_1d(np.array(json.loads(parameters["base_score"]), np.float64)), (outputs,))
    if link == "logistic":
        base = np.log(base / (1 - base))
    trees = []
    for tree, k in zip(booster["model"]["trees"], booster["model"]["tree_info"]):
        if int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
            raise ModelError("XGBoost's trees with several outputs are not supported; take multi_strategy='one_output_per_tree'")
        if any(tree.get("split_type", [])):
            raise ModelError("XGBoost's categorical splits are not supported; encode categories as numbers before fitting")
        left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
        # A leaf keeps its value where an inner node keeps its threshold, all in single precision.
        condition = np.array(tree["split_conditions"], np.float32).astype(np.float64)
        value = np.zeros((len(left), outputs))
        value[:, k] = condition
        trees.append(Tree(np.array(tree["split_indices"]), condition, left, right, value))
    names = feature_names(learner.get("feature_names"), int(parameters["num_feature"]) or count)
    return Ensemble("XGBoost's model", trees, _finish(link, outputs, base), names, strict=True, dtype=np.float32)


def _lightgbm(dump: Mapping[str, Any]) -> Ensemble:
    objective, _, options = dump.get("objective", "").partition(" ")
    links = {"binary": "logistic", "multiclass": "softmax"}
    identity = {"regression", "regression_l1", "huber", "fair", "quantile", "mape"}
    if objective not in links and objective not in identity or "sqrt" in options.split():
        raise ModelError(f"LightGBM's objective {objective} is not supported; {', '.join([*links, *sorted(identity)])} are")
    outputs, link = dump["num_tree_per_iteration"], links.get(objective, "identity")
    sigmoid = float(dict(o.split(":") for o in options.split() if ":" in o).get("sigmoid", 1)) if link == "logistic" else 1.0
    infos = dump["tree_info"]
    share = len(infos) // outputs if dump.get("average_output") else 1
    trees = [_lightgbm_tree(info["tree_structure"], i % outputs, outputs, sigmoid / share) for i, info in enumerate(infos)]
    names = feature_names(dump.get("feature_names"), dump["max_feature_idx"] + 1)
    return Ensemble("LightGBM's model", trees, _finish(link, outputs, np.zeros(outputs)), names, strict=False, dtype=np.float64)


def _lightgbm_tree(root: Mapping[str, Any], k: int, outputs: int, factor: float) -> Tree:
    nodes, children = [root], []
    for node in nodes:
        if "leaf_value" in node:
            children.append((-1, -1))
            continue
        if node["decision_type"] != "<=":
            raise ModelError("LightGBM's categorical splits are not supported; encode categories as numbers before fitting")
        if node["missing_type"] == "Zero":
            raise ModelError("LightGBM's zero_as_missing is not supported; fit without it")
        children.append((len(nodes), len(nodes) + 1))
        nodes += [node["left_child"], node["right_child"]]
    value = np.zeros((len(nodes), outputs))
    value[:, k] = [factor * node.get("leaf_value", 0.0) for node in nodes]
    left, right = np.array(children).T
    feature = np.array([node.get("split_feature", -1) for node in nodes])
    return Tree(feature, np.array([node.get("threshold", 0.0) for node in nodes], np.float64), left, right, value)
