"""What both sides compute, and on which numbers. This file imports nothing, so that every environment can read it."""

from __future__ import annotations

from dataclasses import dataclass

#: log2 of the failure probability that is asked of both sides, and, where the peer cannot have it, of the peer alone.
ASKED = -128.0
LOOSER = (-64.0, -16.6)
#: Rows of the table of the question, and its condition: numbers above the limit are summed. A circuit of the peer takes a vector of some rows.
FILTER_ROWS, FILTER_LIMIT, FILTER_VECTOR = 1000, 100, 16
#: Models on scikit-learn's breast-cancer data: a quarter of it is for testing. The accuracy is the mean of this many splits; the first one's model runs.
SPLITS, TREE_DEPTH, BOOSTED_TREES, BOOSTED_DEPTH, BOOSTED_RATE = 10, 4, 10, 3, 0.3
#: Bits of a feature on both sides, in equal steps: what the documentation of Concrete-ML recommends for trees.
FEATURE_BITS = 6


@dataclass(frozen=True)
class Task:
    """A row of the page: its name on the command line, what the page calls it, what it computes, the bits of its numbers, and whether the client compares a
    model's features with its thresholds before it encrypts them, which the peer has nothing like."""

    name: str
    title: str
    kind: str
    bits: int = 0
    by_ranks: bool = False


#: In the order in which they are measured: those that say most come first.
TASKS = [
    Task("table16", "table of 16 bits", "table", 16),
    Task("lt16", "x < y, 16 bits", "lt", 16),
    Task("min16", "min(x, y), 16 bits", "min", 16),
    Task("table8", "table of 8 bits", "table", 8),
    Task("lt8", "x < y, 8 bits", "lt", 8),
    Task("min8", "min(x, y), 8 bits", "min", 8),
    Task("table4", "table of 4 bits", "table", 4),
    Task("filter", f"{FILTER_ROWS} rows: sum of the numbers above {FILTER_LIMIT}, 8 bits", "filter", 8),
    Task("tree", f"decision tree of depth {TREE_DEPTH}", "tree"),
    Task("boosted", f"{BOOSTED_TREES} boosted trees of depth {BOOSTED_DEPTH}", "boosted"),
    Task("tree-ranks", f"decision tree of depth {TREE_DEPTH}, features by ranks", "tree", by_ranks=True),
    Task("boosted-ranks", f"{BOOSTED_TREES} boosted trees of depth {BOOSTED_DEPTH}, features by ranks", "boosted", by_ranks=True),
]


def by_name(name: str) -> Task:
    """The task of a name."""
    return next(task for task in TASKS if task.name == name)


def entry(x: int, bits: int) -> int:
    """The table's function: a permutation without a pattern that a compiler could use."""
    mask = (1 << bits) - 1
    x = (x * 0x9E37_79B1 + 0x7F4A) & mask
    x ^= x >> (bits // 2)
    return (x * 0x85EB_CA6B + 0x51) & mask


def value(task: Task, *numbers: int) -> int:
    """What a task makes of numbers."""
    if task.kind == "table":
        return entry(numbers[0], task.bits)
    if task.kind == "filter":
        return numbers[0] if numbers[0] > FILTER_LIMIT else 0
    return int(numbers[0] < numbers[1]) if task.kind == "lt" else min(numbers)


def numbers(task: Task, count: int) -> list[tuple[int, ...]]:
    """Arguments for so many rows, the same on both sides: the ends of the interval, equal numbers, then numbers without a pattern."""
    top = (1 << task.bits) - 1
    first = [(top, top - 1), (0, top), (top // 2, top // 2)]
    state, rows = 1, []
    for place in range(count):
        pair = []
        for _ in range(2):
            state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
            pair.append((state >> 33) & top)
        rows.append(first[place] if place < len(first) else tuple(pair))
    width = 2 if task.kind in ("lt", "min") else 1
    return [row[:width] for row in rows]
