"""One task with Concrete, or Concrete-ML where the task is a model, as a line of JSON: `peer.py TASK --log2-failure L`.

The circuit asks for a failure probability of 2^L for the whole of it, and of the rows of a question for each. It is compiled in any case; it runs if what the compiler says of it promises
to need at most `--seconds` of time and `--gib` of memory.
"""

from __future__ import annotations

import argparse
import inspect
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
from concrete import fhe
from tasks import Task

#: What a circuit takes: bytes of keys generated and unpacked a second, units of the compiler's `complexity` a second, and memory for each byte of keys.
KEY_BYTES_PER_S, COMPLEXITY_PER_S, MEMORY_PER_KEY_BYTE = 4.5e7, 6e9, 2.0
GIB = 2**30
#: Keys and inputs are small with these: seeds stand for what is random.
COMPRESSED = {"compress_evaluation_keys": True, "compress_input_ciphertexts": True}
#: The strategies among which a comparison or a minimum takes the one of the least complexity.
STRATEGIES = ["one-tlu-promoted", "three-tlu-casted", "chunked"]


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a call gives, and its seconds on the wall and on processors."""
    wall, processor = time.perf_counter(), time.process_time()
    found = call()
    return found, time.perf_counter() - wall, time.process_time() - processor


def circuits(task: Task, p: float) -> list[tuple[str, Any, float]]:
    """A task's circuit by each strategy that compiles, with the seconds that its compilation takes."""
    top = (1 << task.bits) - 1
    if task.kind in ("table", "filter"):
        table = fhe.LookupTable([tasks.value(task, x) for x in range(top + 1)])
        variants = [("look-up table", {}, lambda x: table[x])]
        if task.kind == "filter":
            variants = [(f"look-up table, sums of {tasks.FILTER_VECTOR} rows", {}, lambda x: np.sum(table[x]))]
    elif task.kind == "lt":
        variants = [(name, {"comparison_strategy_preference": name}, lambda x, y: x < y) for name in STRATEGIES]
    else:
        variants = [(name, {"min_max_strategy_preference": name}, lambda x, y: np.minimum(x, y)) for name in STRATEGIES]
    found, refused = [], []
    for name, options, function in variants:
        width = len(inspect.signature(function).parameters)
        rows = [(0, top)[:width], (top, 0)[:width], (top, top)[:width]]
        inputset = rows if width == 2 else [row[0] for row in rows]
        if task.kind == "filter":
            inputset = [np.full(tasks.FILTER_VECTOR, x) for x in inputset]
        arguments = dict.fromkeys("xy"[:width], "encrypted")
        configuration = fhe.Configuration(global_p_error=p, **COMPRESSED, **options)
        try:
            circuit, seconds, _ = timed(partial(fhe.Compiler(function, arguments).compile, inputset, configuration))
            found.append((name, circuit, seconds))
        except RuntimeError as error:
            refused.append(f"{name}: {str(error).strip().splitlines()[0]}")
    if not found:
        raise SystemExit("; ".join(refused))
    return found


def facts(circuit: Any) -> dict[str, Any]:
    """What the compiler says of a circuit."""
    return {
        "log2_failure": float(np.log2(circuit.global_p_error)),
        "bootstraps": circuit.programmable_bootstrap_count,
        "complexity": circuit.complexity,
        "memory_key_bytes": circuit.size_of_bootstrap_keys + circuit.size_of_keyswitch_keys,
    }


def too_much(circuit: Any, options: argparse.Namespace) -> str | None:
    """Why a circuit does not run within the limits, by an estimate."""
    keys = circuit.size_of_bootstrap_keys + circuit.size_of_keyswitch_keys
    if circuit.packing_key_switch_count:
        # Keys for packing are not among those that are counted, and about as large.
        keys *= 2
    memory, seconds = MEMORY_PER_KEY_BYTE * keys / GIB, keys / KEY_BYTES_PER_S + 2 * circuit.complexity / COMPLEXITY_PER_S
    if memory > options.gib:
        return f"not run: about {memory:.0f} GiB of memory, by the size of its keys"
    if seconds > options.seconds:
        return f"not run: about {seconds:.0f} s for keys and two runs, by its keys and complexity"
    return None


def run(circuit: Any, arguments: list[tuple[Any, ...]], options: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    """Results of a circuit for each row, and what they took. The first run also unpacks keys, and counts apart if there are others."""
    _, keygen, _ = timed(circuit.keygen)
    key_bytes = len(circuit.client.evaluation_keys.serialize())
    results, walls, processors, encryptions = [], [], [], []
    input_bytes = output_bytes = 0
    begin = time.perf_counter()
    for place, row in enumerate(arguments):
        encrypted, seconds, _ = timed(lambda row=row: circuit.encrypt(*row))
        encrypted = encrypted if isinstance(encrypted, tuple) else (encrypted,)
        encryptions.append(seconds)
        input_bytes = sum(len(each.serialize()) for each in encrypted)
        result, wall, processor = timed(lambda encrypted=encrypted: circuit.run(*encrypted))
        output_bytes = len(result.serialize())
        walls.append(wall)
        processors.append(processor)
        results.append(circuit.decrypt(result))
        # The first run and one more at least; then for as long as the row's time allows.
        if place and time.perf_counter() - begin > options.seconds / 4:
            break
    later = slice(1 if len(walls) > 1 else 0, None)
    return results, {
        "keygen_s": keygen,
        "key_bytes": key_bytes,
        "encrypt_s": statistics.median(encryptions),
        "input_bytes": input_bytes,
        "output_bytes": output_bytes,
        "first_s": walls[0],
        "seconds": statistics.median(walls[later]),
        "processor_s": statistics.median(processors[later]),
        "repetitions": len(walls[later]),
    }


def on_numbers(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """A table, a comparison, a minimum, or the filtered sum of a vector of rows."""
    rows = tasks.FILTER_VECTOR if task.kind == "filter" else 1
    # The compiler states the failure probability of a vector's table as that of one number.
    best, circuit, compile_s = min(circuits(task, rows * 2.0**options.log2_failure), key=lambda each: each[1].complexity)
    figures = facts(circuit) | {"compile_s": compile_s, "strategy": best}
    why = too_much(circuit, options)
    if why is not None:
        return figures | {"refused": why}
    numbers = tasks.numbers(task, rows * (options.repetitions + 1))
    groups = [numbers[place : place + rows] for place in range(0, len(numbers), rows)]
    arguments = [(np.array(group)[:, 0],) for group in groups] if task.kind == "filter" else numbers
    results, ran = run(circuit, arguments, options)
    expected = [sum(tasks.value(task, *row) for row in group) for group in groups[: len(results)]]
    assert [int(result) for result in results] == expected, (results, expected)
    if task.kind == "filter":
        ran["input_bytes"] /= rows
        for name in ("seconds", "processor_s"):
            ran[name] *= tasks.FILTER_ROWS / rows
    return figures | ran


def model(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """A tree or an ensemble of Concrete-ML on rows that it was not trained on."""
    from concrete.ml.sklearn import DecisionTreeClassifier, XGBClassifier
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    data = load_breast_cancer(return_X_y=True)
    accuracies = []
    for seed in reversed(range(tasks.SPLITS)):
        X, X_test, y, y_test = train_test_split(*data, test_size=0.25, random_state=seed)
        if task.kind == "tree":
            estimator = DecisionTreeClassifier(n_bits=tasks.FEATURE_BITS, max_depth=tasks.TREE_DEPTH, random_state=0)
        else:
            estimator = XGBClassifier(
                n_bits=tasks.FEATURE_BITS,
                n_estimators=tasks.BOOSTED_TREES,
                max_depth=tasks.BOOSTED_DEPTH,
                learning_rate=tasks.BOOSTED_RATE,
                random_state=0,
            )
        plain = estimator.fit_benchmark(X, y)[1]
        accuracies.append([float((each.predict(X_test) == y_test).mean()) for each in (estimator, plain)])
    configuration = fhe.Configuration(**COMPRESSED)
    circuit, compile_s, _ = timed(lambda: estimator.compile(X, configuration=configuration, global_p_error=2.0**options.log2_failure))
    figures = facts(circuit) | {
        "compile_s": compile_s,
        "accuracy": statistics.mean(own for own, _ in accuracies),
        "float_accuracy": statistics.mean(plain for _, plain in accuracies),
        "strategy": f"{tasks.FEATURE_BITS} bits a feature",
    }
    why = too_much(circuit, options)
    if why is not None:
        return figures | {"refused": why}
    rows = X_test[: options.repetitions + 1]
    results, ran = run(circuit, [(estimator.quantize_input(rows[place : place + 1]),) for place in range(len(rows))], options)
    for row, result in zip(rows, results, strict=False):
        found = estimator.post_processing(estimator.dequantize_output(result))
        expected = estimator.predict_proba(row[None])
        assert np.allclose(found, expected), (found, expected)
    return figures | ran


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=[task.name for task in tasks.TASKS])
    parser.add_argument("--log2-failure", type=float, default=tasks.ASKED)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--gib", type=float, default=18.0)
    options = parser.parse_args()
    task = tasks.by_name(options.task)
    figures = (model if task.bits == 0 else on_numbers)(task, options)
    figures["asked"] = options.log2_failure
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    json.dump(figures, sys.stdout)
    print()


if __name__ == "__main__":
    main()
