"""Types of encrypted integers: annotations that give the interval of an argument or a result."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, get_args, get_origin

from toroid._errors import OptionError


@dataclass(frozen=True)
class Range:
    """The integers from `low` to `high`, both included.

    In an annotation it stands as ``Annotated[int, Range(0, 9)]``; ``u8`` and its like are such annotations.

    Raises:
        ValueError: `low` is above `high`.
        TypeError: They are no integers.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            end = getattr(self, name)
            if not hasattr(end, "__index__"):
                raise TypeError(f"a range ends at integers, and {name} is {end!r}")
            object.__setattr__(self, name, operator.index(end))
        if self.low > self.high:
            raise ValueError(f"no integer lies between {self.low} and {self.high}")

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"


def _unsigned(bits: int) -> Range:
    return Range(0, (1 << bits) - 1)


def _signed(bits: int) -> Range:
    return Range(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


u1 = Annotated[int, _unsigned(1)]
u2 = Annotated[int, _unsigned(2)]
u4 = Annotated[int, _unsigned(4)]
u8 = Annotated[int, _unsigned(8)]
u12 = Annotated[int, _unsigned(12)]
u16 = Annotated[int, _unsigned(16)]
u32 = Annotated[int, _unsigned(32)]
u64 = Annotated[int, _unsigned(64)]
i4 = Annotated[int, _signed(4)]
i8 = Annotated[int, _signed(8)]
i12 = Annotated[int, _signed(12)]
i16 = Annotated[int, _signed(16)]
i32 = Annotated[int, _signed(32)]
i64 = Annotated[int, _signed(64)]


#: The types by their names.
NAMED = {f"u{bits}": _unsigned(bits) for bits in (1, 2, 4, 8, 12, 16, 32, 64)} | {f"i{bits}": _signed(bits) for bits in (4, 8, 12, 16, 32, 64)}


def range_of(annotation: Any) -> Range | None:
    """The interval that an annotation gives; none where it gives none."""
    if isinstance(annotation, Range):
        return annotation
    if annotation is bool:
        return Range(0, 1)
    if get_origin(annotation) is Annotated:
        for part in get_args(annotation)[1:]:
            if isinstance(part, Range):
                return part
    return None


def wrap_name(annotation: Any) -> str:
    """The width of numbers modulo a power of two, as the text of graphs has it: `u16`, `i8`.

    Raises:
        ValueError: The interval is not that of so many bits with or without sign.
    """
    found = range_of(annotation)
    if found is not None:
        bits = (len_of(found) - 1).bit_length()
        if 1 <= bits <= 64 and found == _unsigned(bits):
            return f"u{bits}"
        if 1 <= bits <= 64 and found == _signed(bits):
            return f"i{bits}"
    raise ValueError("numbers wrap at a whole number of bits: give a type such as toroid.u8 or toroid.i16")


def failure_of(log2_failure: object) -> float:
    """log2 of a failure probability that is asked for.

    Raises:
        OptionError: It is above 0, or not finite.
        TypeError: It is no number.
    """
    if not isinstance(log2_failure, Real):
        raise TypeError(f"log2_failure is a number, not {log2_failure!r}")
    found = float(log2_failure)
    if not -math.inf < found <= 0:
        raise OptionError(f"log2_failure is a finite number of at most 0, the logarithm of a probability, and not {found:g}")
    return found


def limit_of(max_log2_failure: object) -> float:
    """log2 of the failure probability that is borne at most.

    Raises:
        OptionError: It is not a number.
        TypeError: It is nothing like a number.
    """
    if not isinstance(max_log2_failure, Real):
        raise TypeError(f"max_log2_failure is a number, not {max_log2_failure!r}")
    found = float(max_log2_failure)
    if math.isnan(found):
        raise OptionError("max_log2_failure is not a number, which nothing is above or below")
    return found


def len_of(numbers: Range) -> int:
    """How many numbers an interval has; `len` stops at 2^63."""
    return numbers.high - numbers.low + 1
