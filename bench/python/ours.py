"""One task with Toroid, as a line of JSON: `ours.py TASK [--log2-failure L] [--repetitions N] [--rows N]`.

The program asks for a failure probability of 2^L for the whole of it.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tasks
import toroid
from tasks import Task
from toroid import models

#: Rows that run together, so that all cores have work.
BATCH = 16
#: Bits of the widest table of a model. Narrower ones take more functions, and fail less.
TABLE_BITS = (14, 13, 12, 11, 10)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and the seconds that it takes on the wall."""
    start = time.perf_counter()
    found = call()
    return found, time.perf_counter() - start


def both(call: Callable[[], Any]) -> tuple[float, float]:
    """The seconds that a call takes on the wall, and those of all threads on processors."""
    start = time.process_time()
    _, wall = timed(call)
    return wall, time.process_time() - start


def recorded(task: Task) -> toroid.Program:
    """The program of a task on numbers."""
    numbers = toroid.Range(0, (1 << task.bits) - 1)
    if task.kind == "table":
        return toroid.program(x=numbers)(lambda x: x.table(lambda number: tasks.entry(number, task.bits)))
    operation = toroid.minimum if task.kind == "min" else lambda x, y: x < y
    return toroid.program(x=numbers, y=numbers)(lambda x, y: operation(x, y))


class Side:
    """A client and a drive in this process, with keys of a set, and what they took."""

    def __init__(self, params: str) -> None:
        self.client, generated = timed(lambda: toroid.Client.generate(params))
        keys, made = timed(self.client.public_keys)
        self.drive = toroid.open()
        _, installed = timed(lambda: self.drive.install(keys))
        self.figures: dict[str, Any] = {
            "set": params,
            "keygen_s": generated + made,
            "install_keys_s": installed,
            "key_bytes": len(keys.to_bytes()),
        }

    def upload(self, columns: Any, types: Any) -> Any:
        """A table of encrypted columns on the drive."""
        table, seconds = timed(lambda: self.client.encrypt(columns, types))
        rows = [digit for column in table.values() for digit in column.digits]
        self.figures["encrypt_s"] = seconds / table.rows
        self.figures["input_bytes"] = len(toroid._core.EncryptedRows.together(rows)) / table.rows
        return self.drive.upload("numbers", table)

    def close(self) -> None:
        """Gives the drive back."""
        self.drive.close()


def measured(program: toroid.GraphProgram, columns: dict[str, Any], options: argparse.Namespace, check: Callable[[Any], None]) -> dict[str, Any]:
    """A program on rows of columns: one row alone, and a batch."""
    repetitions, asked = options.repetitions, options.log2_failure
    compiled, compile_s = timed(lambda: program.compile(log2_failure=asked))
    side = Side(compiled.params)
    table = side.upload(columns, {name: (numbers.low, numbers.high) for name, numbers in program.inputs.items()})
    compiled = program.compile(table, log2_failure=asked)
    registers = compiled.registers({name: column.names for name, column in table.columns.items()})

    def run(rows: int) -> tuple[float, float]:
        # A result that is there already would not be computed again.
        if "output" in side.drive.columns():
            side.drive.delete("output")
        return both(lambda: side.drive.run(compiled.program, registers, "output", rows=(0, rows)))

    # The first run also reads the keys.
    first_s, _ = run(1)
    alone, processor = zip(*(run(1) for _ in range(repetitions)), strict=True)
    together = [run(table.rows)[0] for _ in range(repetitions)]
    check(side.client.decrypt(program.run(table, log2_failure=asked)))
    side.close()
    return side.figures | {
        "compile_s": compile_s,
        "first_s": first_s,
        "seconds": statistics.median(alone),
        "processor_s": statistics.median(processor),
        "row_s": statistics.median(together) / table.rows,
        "rows": table.rows,
        "repetitions": repetitions,
        "bootstraps": compiled.cost.bootstraps,
        "log2_failure": compiled.cost.log2_failure,
    }


def on_numbers(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """A table, a comparison, or a minimum."""
    arguments = tasks.numbers(task, options.rows or BATCH)
    columns = dict(zip("xy", map(np.array, zip(*arguments, strict=True)), strict=False))

    def check(found: Any) -> None:
        expected = [tasks.value(task, *row) for row in arguments]
        assert found.tolist() == expected, (found, expected)

    return measured(recorded(task), columns, options, check)


def filtered(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """A question to a table: a condition, and a sum."""
    count, asked = options.rows or tasks.FILTER_ROWS, options.log2_failure
    column = np.array([row[0] for row in tasks.numbers(task, count)])
    # A question needs a table of its set: the one that programs of so many bits take.
    side = Side(recorded(Task("", "", "table", task.bits)).compile(log2_failure=asked).params)
    table = side.upload({"x": column}, {"x": (0, (1 << task.bits) - 1)})
    query = table.where(toroid.col("x") > tasks.FILTER_LIMIT).agg(total=toroid.col("x").sum())
    compiled, compile_s = timed(lambda: query.compile(asked))
    start = time.process_time()
    answer, seconds = timed(lambda: query.run(log2_failure=asked))
    processor_s = time.process_time() - start
    total = int(side.client.decrypt(answer)["total"])
    assert total == column[column > tasks.FILTER_LIMIT].sum(), total
    side.close()
    return side.figures | {
        "compile_s": compile_s,
        "seconds": seconds * tasks.FILTER_ROWS / count,
        "processor_s": processor_s * tasks.FILTER_ROWS / count,
        "row_s": seconds / count,
        "rows": count,
        "repetitions": 1,
        "bootstraps": compiled.cost.bootstraps,
        "log2_failure": compiled.cost.log2_failure,
    }


def widest(make: Callable[[int], models.Model], asked: float) -> int:
    """The bits of the widest tables with which a model's program fails with 2^asked at most."""
    for table_bits in TABLE_BITS[:-1]:
        try:
            make(table_bits).program.compile(log2_failure=asked)
        except toroid.GraphError:
            continue
        return table_bits
    return TABLE_BITS[-1]


def model(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """A tree of scikit-learn or an ensemble of XGBoost on rows that it was not trained on."""
    from sklearn.base import clone
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split
    from sklearn.tree import DecisionTreeClassifier
    from xgboost import XGBClassifier

    data = load_breast_cancer(return_X_y=True)
    accuracies = []
    for seed in reversed(range(tasks.SPLITS)):
        X, X_test, y, y_test = train_test_split(*data, test_size=0.25, random_state=seed)
        if task.kind == "tree":
            estimator: Any = DecisionTreeClassifier(max_depth=tasks.TREE_DEPTH, random_state=0)
        else:
            # The version of XGBoost that the peer requires splits so, and begins there.
            estimator = XGBClassifier(
                n_estimators=tasks.BOOSTED_TREES,
                max_depth=tasks.BOOSTED_DEPTH,
                learning_rate=tasks.BOOSTED_RATE,
                tree_method="exact",
                base_score=0.5,
                n_jobs=1,
                random_state=0,
            )
        plain = clone(estimator).fit(X, y)
        made = partial(models.compile, plain, X) if task.by_ranks else partial(models.fit, estimator, X, y, bits=tasks.FEATURE_BITS)
        integers = made()
        accuracies.append((integers.score(X_test, y_test), plain.score(X_test, y_test)))
    # What was tried before the one that runs does not count, nor does it on the peer's side.
    table_bits = widest(lambda bits: made(table_bits=bits), options.log2_failure)
    integers, made_s = timed(partial(made, table_bits=table_bits))
    _, built_s = timed(integers.graph)
    rows = X_test[: options.rows or 4]
    scores = integers.predict_quantized(rows)

    def check(found: Any) -> None:
        decrypted = np.stack([np.broadcast_to(found[name], len(rows)) for name in integers.outputs], axis=1)
        assert (decrypted == scores).all(), (decrypted, scores)

    figures = measured(integers.program, integers.quantise(rows), options, check)
    return figures | {
        "compile_s": figures["compile_s"] + made_s + built_s,
        "accuracy": statistics.mean(own for own, _ in accuracies),
        "float_accuracy": statistics.mean(plain for _, plain in accuracies),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=[task.name for task in tasks.TASKS])
    parser.add_argument("--log2-failure", type=float, default=tasks.ASKED)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rows", type=int, help="rows that run together, in place of the task's own number")
    options = parser.parse_args()
    task = tasks.by_name(options.task)
    kinds = {"filter": filtered, "tree": model, "boosted": model}
    figures = kinds.get(task.kind, on_numbers)(task, options)
    figures["asked"] = options.log2_failure
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    json.dump(figures, sys.stdout)
    print()


if __name__ == "__main__":
    main()
