"""Small networks of integer layers: combinations with integer weights, then a table a neuron."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._errors import ModelError
from ._graph import GraphText
from ._model import Finish, Model, integers, matrix
from ._quantise import Uniform

TABLE_BITS = 16


class Layer:
    """`activation(weights @ x + bias)` of integers: `weights` has a row a neuron; without an activation the sums pass on.

    The activation is any Python function of an integer that gives an integer; it is called with every sum that can occur.
    """

    def __init__(self, weights: Any, bias: Any = None, activation: Callable[[int], int] | None = None) -> None:
        self.weights = integers(weights, "weights")
        if self.weights.ndim != 2:
            raise ModelError("weights must be a matrix with a row for each neuron")
        self.bias = np.zeros(len(self.weights), np.int64) if bias is None else integers(bias, "bias")
        if self.bias.shape != (len(self.weights),):
            raise ModelError(f"bias must have {len(self.weights)} integers, one for each neuron")
        if activation is not None and not callable(activation):
            raise ModelError(f"an activation is a function of an integer, not {activation!r}")
        self.activation = activation


class Network(Model):
    """Integer layers as a program: no estimator and no rounding.

    `inputs` has an inclusive interval `(low, high)` for each input. Scores are the last layer's values.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        inputs: Sequence[tuple[int, int]],
        *,
        names: Sequence[str] | None = None,
        classes: Any = None,
    ) -> None:
        if not layers or not all(isinstance(layer, Layer) for layer in layers):
            raise ModelError("a network has at least one layer, each of them a Layer")
        outputs = len(layers[-1].weights)
        link = "softmax" if outputs > 1 else "logistic"
        finish = Finish(np.ones(outputs), np.zeros(outputs), link, None if classes is None else np.asarray(classes))
        intervals = integers(inputs, "the intervals of inputs")
        if intervals.ndim != 2 or intervals.shape[1] != 2:
            raise ModelError("inputs has a pair of the least and the greatest integer for each input")
        columns = {j: Integers(int(low), int(high)) for j, (low, high) in enumerate(intervals)}
        self._prepare("Network", list(names or (f"x{j}" for j in range(len(columns)))), columns, layers, finish)
        self.given = tuple(names) if names else None

    @classmethod
    def _of(cls, kind: str, features: Sequence[str], columns: dict[int, Any], layers: Sequence[Layer], finish: Finish) -> Network:
        model = cls.__new__(cls)
        model._prepare(kind, features, columns, layers, finish)
        return model

    def _prepare(
        self, kind: str, features: Sequence[str], columns: dict[int, Any], layers: Sequence[Layer], finish: Finish
    ) -> None:
        super().__init__(kind, features, columns, finish)
        self.layers = tuple(layers)
        bounds = [(q.least, q.levels) for q in columns.values()]
        self._tables: list[list[tuple[int, np.ndarray]] | None] = []
        for number, layer in enumerate(self.layers):
            if layer.weights.shape[1] != len(bounds):
                raise ModelError(f"layer {number} takes {layer.weights.shape[1]} values, and {len(bounds)} come in")
            # Integers of any size: those of numpy would wrap.
            lows, highs = np.array(bounds, object).T
            positive, negative = layer.weights.clip(0).astype(object), layer.weights.clip(None, 0).astype(object)
            low = layer.bias + positive @ lows + negative @ highs
            high = layer.bias + positive @ highs + negative @ lows
            if low.min() < -(2**63) or high.max() >= 2**63:
                raise ModelError(f"a sum of layer {number} may exceed 64 bits; take smaller weights or narrower inputs")
            bounds = list(zip(low.tolist(), high.tolist()))
            if layer.activation is None:
                self._tables.append(None)
                continue
            widest = int((high - low).max())
            if widest >= 1 << TABLE_BITS:
                raise ModelError(
                    f"a sum of layer {number} has {widest + 1} values, and a table takes 2^{TABLE_BITS}; "
                    "take smaller weights or narrower inputs"
                )
            # Neurons have most of their sums in common.
            activation, tables = functools.cache(layer.activation), []
            for least, most in bounds:
                entries = [_entry(activation, value) for value in range(least, most + 1)]
                tables.append((least, np.array(entries, np.int64)))
            self._tables.append(tables)
            bounds = [(int(entries.min()), int(entries.max())) for _, entries in tables]

    def _scores(self, codes: dict[int, np.ndarray]) -> np.ndarray:
        values: np.ndarray = np.stack([codes[j] for j in self.quantisers], axis=1)
        for layer, tables in zip(self.layers, self._tables):
            values = values @ layer.weights.T + layer.bias
            if tables is not None:
                values = np.stack([entries[values[:, i] - low] for i, (low, entries) in enumerate(tables)], axis=1)
        return values

    def _build(self) -> str:
        graph = GraphText()
        values = [graph.input(self.features[j], q.least, q.levels) for j, q in self.quantisers.items()]
        for layer, tables in zip(self.layers, self._tables):
            rows = zip(layer.weights.tolist(), layer.bias.tolist())
            values = [graph.linear(zip(weights, values), bias) for weights, bias in rows]
            if tables is not None:
                values = [graph.table(value, entries.tolist()) for value, (_, entries) in zip(values, tables)]
        for output, value in zip(self.outputs, values):
            graph.output(output, value)
        return graph.text()


class Integers:
    """A column that holds integers already, of least..levels."""

    def __init__(self, low: int, high: int) -> None:
        if low > high:
            raise ModelError(f"an input's interval {low}..{high} is empty")
        self.least, self.levels = low, high

    def encode(self, values: Any) -> np.ndarray:
        """The values themselves, checked."""
        whole = integers(values, "inputs")
        if whole.size and not self.least <= whole.min() <= whole.max() <= self.levels:
            raise ModelError(f"inputs must lie in {self.least}..{self.levels}")
        return whole


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}


def perceptron(
    kind: str,
    features: Sequence[str],
    X: Any,
    weights: Sequence[np.ndarray],
    biases: Sequence[np.ndarray],
    activation: str,
    bits: int,
    score_bits: int,
    finish: Finish,
) -> Network:
    """A network of floats in integers: features and activations of `bits` bits, sums of at most `score_bits`.

    Each layer's weights take the largest scale for which no sum can leave its width. The range of an activation is that of
    the sample `X`; values beyond it are clipped.
    """
    if activation not in ACTIVATIONS:
        raise ModelError(f"{kind}: the activation {activation!r} is not supported; take one of {', '.join(ACTIVATIONS)}")
    function = ACTIVATIONS[activation]
    X = matrix(X)
    quantisers = [Uniform.fit(X[:, j], bits) for j in range(X.shape[1])]
    columns = dict(enumerate(quantisers))
    layers, exact = [], X
    for number, (matrix_, bias) in enumerate(zip(weights, biases)):
        steps, lows = np.array([q.step for q in quantisers]), np.array([q.low for q in quantisers])
        levels = np.array([q.levels for q in quantisers])
        real, offset = matrix_.T * steps, bias + matrix_.T @ lows
        room = (1 << score_bits) - 2 - levels.sum() / 2
        if room <= 0:
            raise ModelError(
                f"{kind}: {len(levels)} values of these widths do not fit a sum of {score_bits} bits; "
                "take fewer bits, fewer neurons, or raise score_bits"
            )
        factor = room / float((abs(real) * levels).sum(axis=1).max())
        whole = np.rint(real * factor).astype(np.int64)
        exact = exact @ matrix_ + bias
        if number + 1 == len(weights):
            finish = Finish(np.full(len(bias), 1 / factor), offset, finish.link, finish.classes, finish.tie)
            layers.append(Layer(whole))
            break
        exact = function(exact)
        outgoing = Uniform.fit(exact, bits)
        # One quantiser and one function of integers serve the whole layer, so offsets go into the sums.
        constant = np.rint(offset * factor).astype(np.int64)

        def activate(value: int, factor: float = factor, outgoing: Uniform = outgoing) -> int:
            return int(outgoing.encode(function(np.array([value / factor])))[0])

        layers.append(Layer(whole, constant, activate))
        quantisers = [outgoing] * len(bias)
    return Network._of(kind, features, columns, layers, finish)


def _entry(activation: Callable[[int], Any], value: int) -> int:
    """What an activation gives, if it is an integer."""
    try:
        result = activation(value)
    except Exception as error:
        raise ModelError(f"the activation of {value} raises {type(error).__name__}: {error}") from error
    try:
        return operator.index(result.item() if isinstance(result, np.generic) else result)
    except TypeError:
        raise ModelError(f"the activation of {value} gives {result!r}, and no integer") from None
