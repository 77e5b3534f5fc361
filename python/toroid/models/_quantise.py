"""How a feature becomes an integer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ._errors import ModelError


@dataclass(frozen=True)
class Uniform:
    """`round((x - low) / step)`, clipped to 0..levels: the range of the feature in the sample, in equal steps, one of which has zero in its middle."""

    least: ClassVar[int] = 0
    low: float
    step: float
    levels: int

    def encode(self, values: Any) -> np.ndarray:
        """The integers of floats, int64."""
        return np.clip(np.rint((_floats(values) - self.low) / self.step), 0, self.levels).astype(np.int64)

    def decode(self, codes: Any) -> np.ndarray:
        """The float in the middle of each integer's step."""
        return self.low + np.asarray(codes, np.float64) * self.step

    @classmethod
    def fit(cls, values: Any, bits: int) -> Uniform:
        """The range of `values` in 2^bits - 1 steps."""
        values = _floats(values)
        low, high, levels = float(values.min()), float(values.max()), (1 << bits) - 1
        step = (high - low) / levels
        if not step:
            return cls(low, 1.0, levels)
        # Zero is a number that many features have often, and it loses nothing: the ends of the range are within half a step in any case.
        return cls(float(np.rint(low / step)) * step, step, levels)


@dataclass(frozen=True)
class Ranks:
    """The number of a model's thresholds that `x` is beyond: nothing that the model sees is lost.

    `strict` says that a value equal to a threshold is beyond it (XGBoost); otherwise it is not (scikit-learn, LightGBM).
    `dtype` is the precision in which the model compares.
    """

    least: ClassVar[int] = 0
    thresholds: np.ndarray
    strict: bool
    dtype: type

    @property
    def levels(self) -> int:
        """The largest integer."""
        return len(self.thresholds)

    def encode(self, values: Any) -> np.ndarray:
        """The integers of floats, int64."""
        values = _floats(values).astype(self.dtype).astype(np.float64)
        ranks: np.ndarray = np.searchsorted(self.thresholds, values, side="right" if self.strict else "left")
        return ranks.astype(np.int64)


def _floats(values: Any) -> np.ndarray:
    floats: np.ndarray = np.asarray(values, np.float64)
    if not floats.size or not np.isfinite(floats).all():
        raise ModelError("features must be finite numbers, and there must be some; fill missing values before")
    return floats
