"""Computing on encrypted columns where they are stored."""

from toroid import _core
from toroid._errors import *  # noqa: F403
from toroid._errors import __all__ as _errors

__version__: str = _core.__version__

__all__ = ["__version__", *_errors]
