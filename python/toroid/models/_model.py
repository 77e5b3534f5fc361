"""What all compiled models have in common."""

from __future__ import annotations

import keyword
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toroid._program import GraphProgram
from toroid._types import Range

from ._errors import ModelError

RESERVED = {"input", "output", "table", "sum", "min", "max", "abs", "select", "wrap"}


@dataclass(frozen=True)
class Finish:
    """How the client turns integer scores into the estimator's answers.

    A score s of output k means `s * scale[k] + offset[k]`. `link` is `identity`, `logistic`, `softmax`, `probability` (the
    value is one already) or `margin` (a classifier without probabilities). `tie` is the class of a binary decision on the border.
    """

    scale: np.ndarray
    offset: np.ndarray
    link: str
    classes: np.ndarray | None = None
    tie: int = 0


class Model(ABC):
    """A fitted model of integers, and the program that computes it.

    `columns` names the encrypted inputs, features that the model ignores left out; `outputs` names the integer scores.
    """

    def __init__(self, kind: str, features: Sequence[str], quantisers: Mapping[int, Any], finish: Finish) -> None:
        if not quantisers:
            raise ModelError(f"{kind} gives one answer whatever its features are; nothing is left to encrypt")
        self.kind = kind
        self.features = tuple(features)
        self.quantisers = dict(quantisers)
        self.finish = finish
        self.columns = tuple(self.features[j] for j in self.quantisers)
        outputs = len(finish.scale)
        self.outputs = ("score",) if outputs == 1 else tuple(f"score_{k}" for k in range(outputs))
        # The names of the estimator's features, where it has some.
        self.given: tuple[str, ...] | None = None
        self._text: str | None = None

    def __repr__(self) -> str:
        return f"<toroid.models.Model of {self.kind}: {len(self.columns)} columns, {len(self.outputs)} outputs>"

    def quantise(self, X: Any) -> dict[str, np.ndarray]:
        """The integer columns (int64) that the program reads, of a matrix of rows × features or a table of named columns."""
        X = matrix(in_order(X, self.given or (self.features if isinstance(X, Mapping) else None)))
        if X.shape[1] != len(self.features):
            raise ModelError(f"{self.kind} was fitted on {len(self.features)} features, and here are {X.shape[1]}")
        return {self.features[j]: quantiser.encode(X[:, j]) for j, quantiser in self.quantisers.items()}

    def predict_quantized(self, columns: Any) -> np.ndarray:
        """The integer scores in clear, rows × outputs (int64), of a matrix of floats or of the columns of `quantise`.

        An encrypted run of `graph` gives the same numbers.
        """
        columns = columns if isinstance(columns, Mapping) else self.quantise(columns)
        if lacking := [name for name in self.columns if name not in columns]:
            raise ModelError(f"there is no column {lacking[0]}; the model has {', '.join(self.columns)}")
        codes = {j: integers(columns[self.features[j]], f"column {self.features[j]}") for j in self.quantisers}
        _check_lengths(codes.values())
        for j, code in codes.items():
            low, high = self.quantisers[j].least, self.quantisers[j].levels
            if code.size and not low <= code.min() <= code.max() <= high:
                raise ModelError(f"column {self.features[j]} must lie in {low}..{high}")
        return self._scores(codes)

    def graph(self) -> str:
        """The program as the text of a graph."""
        if self._text is None:
            self._text = self._build()
        return self._text

    @property
    def types(self) -> dict[str, tuple[int, int]]:
        """The least and the greatest number of each column, as `client.encrypt` takes them."""
        return {self.features[j]: (quantiser.least, quantiser.levels) for j, quantiser in self.quantisers.items()}

    @property
    def program(self) -> GraphProgram:
        """The program, which runs on a table of encrypted columns; its results go to `predict` and the like once they are decrypted."""
        inputs = {name: Range(low, high) for name, (low, high) in self.types.items()}
        return GraphProgram(self.graph(), inputs, self.outputs, f"the model of {self.kind}")

    def decision(self, scores: Any) -> np.ndarray:
        """The estimator's raw values (margins, or probabilities of a forest, or a regressor's numbers) of integer scores.

        `scores` is what `predict_quantized` gives, or the decrypted columns by the names of `outputs`.
        """
        if isinstance(scores, Mapping):
            if set(scores) != set(self.outputs):
                raise ModelError(f"the scores are the columns {', '.join(self.outputs)}, and not {', '.join(map(str, scores))}")
            named = [np.asarray(scores[name]) for name in self.outputs]
            _check_lengths(named)
            scores = np.stack(named, axis=1)
        scores = np.asarray(scores)
        if scores.dtype.kind not in "iuO":
            raise ModelError(f"scores are integers, not {scores.dtype}: give what predict_quantized gives, or what is decrypted")
        if scores.ndim == 1 and len(self.outputs) == 1:
            scores = scores[:, None]
        if scores.ndim != 2 or scores.shape[1] != len(self.outputs):
            raise ModelError(f"scores have {len(self.outputs)} columns, and here is an array of shape {scores.shape}")
        scores = scores.astype(np.int64)
        values: np.ndarray = scores * self.finish.scale + self.finish.offset
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, scores: Any) -> np.ndarray:
        """Classes, or a regressor's numbers, of integer scores."""
        values, classes = self.decision(scores), self.finish.classes
        if classes is None:
            return values
        if values.ndim == 2:
            return np.asarray(np.take(classes, values.argmax(axis=1)))
        border = 0.5 if self.finish.link == "probability" else 0.0
        one = (values > border) | ((values == border) & bool(self.finish.tie))
        return np.asarray(np.take(classes, one.astype(int)))

    def predict_proba(self, scores: Any) -> np.ndarray:
        """Probabilities of the classes, rows × classes, of integer scores; an error for models that have none."""
        values, link = self.decision(scores), self.finish.link
        if self.finish.classes is None or link == "margin":
            raise ModelError(f"{self.kind} has no probabilities; use decision")
        if link == "softmax":
            powers = np.exp(values - values.max(axis=1, keepdims=True))
            return np.asarray(powers / powers.sum(axis=1, keepdims=True))
        if values.ndim == 2:
            return np.asarray(values / values.sum(axis=1, keepdims=True))
        one = values if link == "probability" else 1 / (1 + np.exp(-values))
        return np.stack([1 - one, one], axis=1)

    def score(self, X: Any, y: Any) -> float:
        """The integer model's accuracy, or R² of a regressor, on rows in clear: compare it with the estimator's own `score`."""
        answers, y = self.predict(self.predict_quantized(X)), np.asarray(y)
        if answers.shape != y.shape:
            raise ModelError(f"there are answers of shape {answers.shape}, and right ones of shape {y.shape}")
        if self.finish.classes is not None:
            return float((answers == y).mean())
        return float(1 - ((answers - y) ** 2).sum() / ((y - y.mean(axis=0)) ** 2).sum())

    @abstractmethod
    def _scores(self, codes: dict[int, np.ndarray]) -> np.ndarray: ...

    @abstractmethod
    def _build(self) -> str: ...


def names_of(X: Any) -> tuple[str, ...] | None:
    """The names of a table's columns; none of what has no such names."""
    names = tuple(X) if isinstance(X, Mapping) else tuple(getattr(X, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def in_order(X: Any, features: Sequence[str] | None) -> Any:
    """The features of a table of named columns, in this order; anything else as it is.

    Raises:
        ModelError: The table lacks one, or has others.
    """
    names = names_of(X)
    if names is None or features is None:
        return X
    if lacking := [name for name in features if name not in names]:
        raise ModelError(f"the table has no feature {lacking[0]}")
    if unknown := [name for name in names if name not in features]:
        raise ModelError(f"the table has {unknown[0]}, which is no feature of the model")
    columns = [np.asarray(X[name]) for name in features]
    _check_lengths(columns)
    return np.column_stack(columns)


def integers(values: Any, what: str) -> np.ndarray:
    """Integers as int64.

    Raises:
        ModelError: They are none, or wider than 64 bits.
    """
    try:
        found = np.asarray(values)
        # What is not a number is none of the integers that it becomes.
        with np.errstate(invalid="ignore"):
            whole: np.ndarray = found.astype(np.int64)
    except (OverflowError, TypeError, ValueError):
        raise ModelError(f"{what} must be integers of at most 64 bits") from None
    if found.dtype.kind not in "biufO" or not np.array_equal(whole, found):
        raise ModelError(f"{what} must be integers")
    return whole


def _check_lengths(columns: Iterable[np.ndarray]) -> None:
    """Refuses columns that are none, or of different lengths."""
    shapes = [column.shape for column in columns]
    if any(len(shape) != 1 for shape in shapes) or len(set(shapes)) > 1:
        raise ModelError("columns have one dimension, and as many rows each")


def matrix(X: Any) -> np.ndarray:
    """Rows × features as float64."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ModelError("features are missing: fill them in first")
    try:
        rows: np.ndarray = np.asarray(X, np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"features must be a matrix of numbers: {error}") from None
    if rows.ndim != 2:
        raise ModelError(f"features must be a matrix of rows and features, not {rows.ndim}-dimensional")
    return rows


def feature_names(names: Sequence[Any] | None, count: int) -> list[str]:
    """Names of input columns: the estimator's own where a graph can have them, else `x0`, `x1`, …"""
    given = [str(name) for name in names] if names is not None else []
    if len(given) != count or len(set(given)) != count:
        return [f"x{j}" for j in range(count)]
    usable = [
        name.isascii() and name.isidentifier() and name[0] != "_" and name not in RESERVED and not keyword.iskeyword(name)
        for name in given
    ]
    if all(usable):
        return given
    return [f"x{j}" for j in range(count)]


def bounded(name: str, value: int, low: int, high: int) -> None:
    """Refuses an option that is no integer of its range."""
    if not hasattr(value, "__index__"):
        raise ModelError(f"{name} must be an integer, not {value!r}")
    if not low <= value <= high:
        raise ModelError(f"{name} must lie in {low}..{high}, not {value}")
