"""Trained models as programs for encrypted columns.

`compile` turns a fitted estimator into a `Model`: integers for the features, an integer model, and the graph of a program
whose encrypted result equals the integer model's bit for bit; `fit` trains trees on such integers first. scikit-learn, XGBoost and LightGBM are imported by nobody here:
their objects are read as they are, and XGBoost's and LightGBM's models also from their dumps.
"""

from ._compile import compile, fit
from ._errors import ModelError
from ._model import Model
from ._network import Layer, Network
from ._quantise import Ranks, Uniform

__all__ = ["Layer", "Model", "ModelError", "Network", "Ranks", "Uniform", "compile", "fit"]
