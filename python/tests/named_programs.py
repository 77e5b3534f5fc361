"""Programs and tables that a module names, for tests of pickling."""

import toroid


@toroid.table
def square(x: toroid.u4) -> toroid.u8:
    return x * x


@toroid.program
def squares(x: toroid.u4, y: toroid.u4):
    return square(x) + square(y)
