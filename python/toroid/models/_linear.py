"""Linear models: one combination of the features with integer weights for each output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ._errors import ModelError
from ._graph import GraphText
from ._model import Finish, Model
from ._quantise import Uniform


class Linear(Model):
    """`score_k = Σ weights[k, j]·x_j`, where the intercept stays with the client."""

    def __init__(
        self,
        kind: str,
        features: Sequence[str],
        quantisers: Mapping[int, Uniform],
        coefficients: np.ndarray,
        intercept: np.ndarray,
        score_bits: int,
        link: str,
        classes: np.ndarray | None,
    ) -> None:
        used = [j for j in quantisers if coefficients[:, j].any()]
        steps = np.array([quantisers[j].step for j in used])
        lows = np.array([quantisers[j].low for j in used])
        levels = np.array([quantisers[j].levels for j in used])
        exact = coefficients[:, used] * steps
        span = (abs(exact) * levels).sum(axis=1).max() if used else 0.0
        # Rounding moves each weight by at most one half, which the room of half the levels accounts for.
        room = (1 << score_bits) - 1 - levels.sum() / 2
        if used and room <= 0:
            raise ModelError(
                f"{kind}: {len(used)} features of these widths do not fit a score of {score_bits} bits; "
                f"take fewer bits a feature or score_bits={int(levels.sum()).bit_length() + 2}"
            )
        factor = room / span if used else 1.0
        self.weights = np.rint(exact * factor).astype(np.int64)
        outputs = len(coefficients)
        offset = intercept + coefficients[:, used] @ lows
        finish = Finish(np.full(outputs, 1 / factor), offset, link, classes)
        kept = [i for i in range(len(used)) if self.weights[:, i].any()]
        self.weights = self.weights[:, kept]
        super().__init__(kind, features, {used[i]: quantisers[used[i]] for i in kept}, finish)

    def _scores(self, codes: dict[int, np.ndarray]) -> np.ndarray:
        columns = np.stack([codes[j] for j in self.quantisers], axis=1)
        scores: np.ndarray = columns @ self.weights.T
        return scores

    def _build(self) -> str:
        graph = GraphText()
        names = [graph.input(self.features[j], 0, q.levels) for j, q in self.quantisers.items()]
        for output, weights in zip(self.outputs, self.weights.tolist()):
            graph.output(output, graph.linear(zip(weights, names)))
        return graph.text()
