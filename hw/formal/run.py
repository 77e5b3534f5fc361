#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prove the arithmetic of hw/lib, and sums and addresses of cores beside it, with two solvers.

Each proof is a module that instantiates a unit and asserts its specification, combinational once the unit's registers, if
it has any, are wires: what is proved of those is what they compute, not in which cycle. Where that counts (`CYCLES`), it is
proved of registers, some cycles behind any state and with any inputs. Yosys (pyosys) writes it as SMT-LIB; Z3 and Bitwuzla
must both answer `unsat`: no input breaks an assertion. The self-tests hand a unit a wrong constant or input, and both solvers
must then find one that does (`sat`).

Needs pyosys, z3-solver and bitwuzla (hw/tools/requirements.txt). Exit status: 0 if every answer is the expected one, else 1.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
HW = HERE.parent
# Cells whose output is a free input of a proof: the claims hold whatever it is. Here, what solinas_shift ends with.
FREE = {"twiddle_mul_proof": "t:$sub"}
# Proofs whose registers are registers: how many cycles lie between any state and the one in which the claims must hold.
CYCLES = {
    "rader_streams_proof": lambda _: 1,
    "elastic_exchange_proof": lambda parameters: 2 * ((1 << parameters["LOG_LANES"]) - 1),
}
# For techmap: a register is a wire.
REGISTERS = """
(* techmap_celltype = "$dff" *)
module register_as_wire #(parameter WIDTH = 1, CLK_POLARITY = 1) (input CLK, input [WIDTH-1:0] D, output [WIDTH-1:0] Q);
  assign Q = D;
endmodule
"""
SOLVERS = ("z3", "bitwuzla")
TIME_LIMIT = 1800  # seconds for one proof and solver; the slowest takes a minute on an idle machine

# name: (module, parameters, expected answer)
PROOFS = {
    "mod_add_goldilocks": ("mod_add_proof", {}, "unsat"),
    "mod_add_28": ("mod_add_proof", {"WIDTH": 28, "Q": "64'hfff0001"}, "unsat"),
    "mod_add_14": ("mod_add_proof", {"WIDTH": 14, "Q": "64'd12289"}, "unsat"),
    "goldilocks_fold_128": ("goldilocks_fold_proof", {"WIDTH": 128}, "unsat"),
    "goldilocks_fold_130": ("goldilocks_fold_proof", {"WIDTH": 130}, "unsat"),
    **{f"goldilocks_join_{n}": ("goldilocks_join_proof", {"UPPER": n}, "unsat") for n in range(4)},
    "goldilocks_canonical_product": ("goldilocks_canonical_proof", {"LOW": 0, "HIGH": 2}, "unsat"),
    "goldilocks_canonical_product_split": ("goldilocks_canonical_proof", {"LOW": 0, "HIGH": 2, "SPLIT": 1}, "unsat"),
    "goldilocks_canonical_sum": ("goldilocks_canonical_proof", {"LOW": 0, "HIGH": 3}, "unsat"),
    "goldilocks_canonical_difference": ("goldilocks_canonical_proof", {"LOW": -2, "HIGH": 2}, "unsat"),
    "goldilocks_canonical_difference_split": ("goldilocks_canonical_proof", {"LOW": -2, "HIGH": 2, "SPLIT": 1}, "unsat"),
    "goldilocks_canonical_lane_split": ("goldilocks_canonical_proof", {"LOW": -2, "HIGH": 3, "SPLIT": 1}, "unsat"),
    "goldilocks_canonical_sum_split": ("goldilocks_canonical_proof", {"LOW": 0, "HIGH": 3, "SPLIT": 1}, "unsat"),
    "goldilocks_canonical_widest": ("goldilocks_canonical_proof", {"LOW": -3, "HIGH": 3}, "unsat"),
    **{
        f"goldilocks_shift_{width}_{exponent}": ("goldilocks_shift_proof", {"WIDTH": width, "EXPONENT": exponent}, "unsat")
        for width, exponent in ((65, 0), (66, 31), (72, 45), (65, 144), (72, 160), (67, 191), (96, 95))
    },
    **{f"stream_reduce_{width}": ("stream_reduce_proof", {"WIDTH": width}, "unsat") for width in (65, 66, 72)},
    "goldilocks_canonical_widest_split": ("goldilocks_canonical_proof", {"LOW": -3, "HIGH": 3, "SPLIT": 1}, "unsat"),
    "goldilocks_butterfly": ("goldilocks_butterfly_proof", {}, "unsat"),
    **{
        f"solinas_{i}_{j}": ("solinas_proof", {"I": i, "J": j}, "unsat")
        for i, j in ((14, 10), (14, 12), (17, 16), (28, 16), (32, 20), (32, 30), (43, 41), (64, 32), (64, 40))
    },
    **{
        f"{unit}_{i}_{j}": (f"{unit}_proof", {"I": i, "J": j}, "unsat")
        for i, j in ((4, 2), (14, 12), (16, 12), (27, 21), (28, 16), (32, 20), (60, 18), (64, 32), (64, 62))
        for unit in ("solinas_shift", "solinas_carry", "butterfly_solinas")
    },
    "mod_half_14": ("mod_half_proof", {"WIDTH": 14}, "unsat"),
    "mod_half_65": ("mod_half_proof", {"WIDTH": 65}, "unsat"),
    "montgomery_64_word_17": ("montgomery_proof", {"WIDTH": 64, "WORD": 17}, "unsat"),
    "montgomery_64_word_12": ("montgomery_proof", {"WIDTH": 64, "WORD": 12}, "unsat"),
    "montgomery_28_word_16": ("montgomery_proof", {"WIDTH": 28, "WORD": 16, "Q": "64'hfff0001"}, "unsat"),
    **{
        f"montgomery_wide_{width}_word_{word}{suffix}": (
            "montgomery_wide_proof",
            {"WIDTH": width, "WORD": word, "STEP": step, "CLEARS": clears},
            "unsat",
        )
        for width, word, step in ((32, 8, 16), (64, 10, 22), (64, 12, 22), (64, 6, 13), (64, 8, 16), (64, 4, 10))
        for clears, suffix in ((0, ""), (1, "_clears"))
        if not clears or step - word < 12
    },
    **{f"elastic_turn_{1 << n}": ("elastic_turn_proof", {"LOG_LANES": n}, "unsat") for n in (2, 3, 4, 5)},
    **{
        f"rader_streams_{columns}_{words}": ("rader_streams_proof", {"COLUMNS": columns, "WORDS": words}, "unsat")
        for columns, words in (
            *((5, 3), (17, 3), (17, 5), (17, 15)),
            *((257, 3), (257, 5), (257, 15), (257, 17), (257, 51), (257, 85)),
        )
    },
    **{f"elastic_exchange_{1 << n}": ("elastic_exchange_proof", {"LOG_LANES": n}, "unsat") for n in (2, 3)},
    "barrett_10_full": ("barrett_proof", {"Q": "64'd769", "FULL": 1}, "unsat"),
    "barrett_61": ("barrett_proof", {"Q": "64'd2305843009213693951"}, "unsat"),
    "barrett_64": ("barrett_proof", {}, "unsat"),
    **{
        f"sdf_sums_{i}_{j}": ("sdf_sums_proof", {"I": i, "J": j}, "unsat")
        for i, j in ((4, 2), (13, 9), (14, 12), (28, 16), (38, 36), (64, 32))
    },
    **{
        f"sdf_sums_canonical_{i}_{j}": ("sdf_sums_proof", {"I": i, "J": j, "SOLINAS": 0}, "unsat")
        for i, j in ((13, 9), (64, 32))
    },
    **{
        f"twiddle_mul_{i}_{j}": ("twiddle_mul_proof", {"I": i, "J": j}, "unsat")
        for i, j in ((4, 2), (13, 9), (14, 12), (28, 16), (38, 36), (64, 32))
    },
    "self_test_mod_add": ("mod_add_proof", {"Q_USED": "64'hffffffff00000003"}, "sat"),
    "self_test_goldilocks_join": ("goldilocks_join_proof", {"ADDEND_USED": 0}, "sat"),
    "self_test_goldilocks_canonical": ("goldilocks_canonical_proof", {"HIGH": 2, "HIGH_USED": 1}, "sat"),
    "self_test_goldilocks_shift": ("goldilocks_shift_proof", {"EXPONENT": 40, "EXPONENT_USED": 41}, "sat"),
    "self_test_stream_reduce": ("stream_reduce_proof", {"WIDTH": 72, "WIDTH_USED": 68}, "sat"),
    "self_test_goldilocks_canonical_split": (
        "goldilocks_canonical_proof",
        {"HIGH": 2, "HIGH_USED": 1, "SPLIT": 1},
        "sat",
    ),
    "self_test_solinas": ("solinas_proof", {"I": 28, "J": 16, "J_USED": 15}, "sat"),
    "self_test_solinas_shift": ("solinas_shift_proof", {"I": 28, "J": 16, "J_USED": 15}, "sat"),
    "self_test_solinas_carry": ("solinas_carry_proof", {"I": 28, "J": 16, "J_USED": 15}, "sat"),
    "self_test_mod_half": ("mod_half_proof", {"ODD": 0}, "sat"),
    "self_test_butterfly_solinas_end": ("butterfly_solinas_proof", {"I": 14, "J": 12, "MULTIPLES_USED": 1}, "sat"),
    "self_test_butterfly_solinas_product": ("butterfly_solinas_proof", {"I": 28, "J": 16, "MAGNITUDE_SHIFT": 0}, "sat"),
    "self_test_sdf_sums": ("sdf_sums_proof", {"Q_USED": "64'd7937"}, "sat"),
    "self_test_sdf_sums_canonical": ("sdf_sums_proof", {"SOLINAS": 0, "Q_USED": "64'd7679"}, "sat"),
    "self_test_twiddle_mul": ("twiddle_mul_proof", {"NEGATIVE_USED": 0}, "sat"),
    "self_test_montgomery": ("montgomery_proof", {"WORD": 17, "WORD_USED": 16}, "sat"),
    "self_test_montgomery_wide": ("montgomery_wide_proof", {"WORD": 4, "STEP": 10, "SQUARE_USED": 0}, "sat"),
    "self_test_montgomery_wide_bound": ("montgomery_wide_proof", {"CLEARS": 0, "BOUND_USED": 1}, "sat"),
    "self_test_elastic_turn": ("elastic_turn_proof", {"SHIFT_USED": 1}, "sat"),
    "self_test_elastic_exchange": ("elastic_exchange_proof", {"LOG_LANES": 2, "SHIFT_USED": 1}, "sat"),
    "self_test_rader_streams": ("rader_streams_proof", {"COLUMNS": 17, "WORDS": 5, "COLUMNS_USED": 18}, "sat"),
    "self_test_barrett": ("barrett_proof", {"MULTIPLES_USED": 1}, "sat"),
}


def closure(module):
    """The files that a proof needs, packages and units before their users: one module or package per file, named after it."""
    files = {path.stem: path for path in sorted(HW.glob("*/*.sv"))}
    order = []

    def visit(name):
        path = files.pop(name)
        code = re.sub(r'//.*|/\*[\s\S]*?\*/|"(\\.|[^"\\])*"', " ", path.read_text())
        for used in sorted(set(re.findall(r"\w+", code))):
            if used in files:
                visit(used)
        order.append(path)

    visit(module)
    return order


def export(name, path):
    """Write the negation of a proof's assertions as SMT-LIB."""
    from pyosys import libyosys

    module, parameters, _ = PROOFS[name]
    sources = closure(module)
    settings = " ".join(f"-G {key}={value}" for key, value in parameters.items())
    design = libyosys.Design()
    body, registers = path.with_suffix(".body"), path.with_suffix(".registers.v")
    registers.write_text(REGISTERS)
    for command in (
        f"read_slang --no-implicit-memories --top {module} {settings} {' '.join(map(str, sources))}",
        f"prep -top {module} -flatten",
        *([] if module in CYCLES else [f"techmap -map {registers}"]),
        "opt",
        "dffunmap",
        *([f"cutpoint {FREE[module]}"] if module in FREE else []),
        "async2sync",
        "chformal -lower",
        "opt_clean",
        f"write_smt2 -stbv {body}",
    ):
        libyosys.run_pass(f"tee -q -a {path.with_suffix('.log')} {command}", design)
    text = body.read_text()
    if "yosys-smt2-assert" not in text:
        raise SystemExit(f"{name}: Yosys has dropped the assertions")
    states = [f"s{n}" for n in range(CYCLES[module](parameters))] if module in CYCLES else []
    states.append("s")
    script = ["(set-logic QF_BV)", text]
    for state in states:
        script += [f"(declare-const {state} |{module}_s|)", f"(assert (|{module}_u| {state}))"]
    script += [f"(assert (|{module}_t| {before} {after}))" for before, after in zip(states, states[1:])]
    path.write_text("\n".join(script) + "\n")


def ask(solver, text):
    """The answer of one solver to one SMT-LIB script."""
    if solver == "z3":
        import z3

        instance = z3.SolverFor("QF_BV")
        instance.from_string(text)
        return str(instance.check())
    import bitwuzla

    manager = bitwuzla.TermManager()
    parser = bitwuzla.Parser(manager, bitwuzla.Options())
    parser.parse(text, True, False)
    return str(parser.bitwuzla().check_sat()).rsplit(".", 1)[-1].lower()


def solve(solver, path):
    """Print the answer of one solver: `unsat` if no assertion of the script can be broken."""
    text = pathlib.Path(path).read_text()
    assertions = re.findall(r"\(define-fun (\|\S+_a \d+\|)", text)
    if not assertions:
        raise SystemExit(f"{path}: no assertions")
    for assertion in assertions:
        answer = ask(solver, f"{text}(assert (not ({assertion} s)))\n")
        if answer != "unsat":
            break
    print(answer)


def child(*arguments):
    """Run this file in a process of its own and return the last line it prints, or what went wrong."""
    command = [sys.executable, __file__, *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return "timeout"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return (done.stdout.strip().splitlines() or [""])[-1]


def prove(name, folder):
    """Run one proof through both solvers; returns its lines and whether the answers are the expected ones."""
    path = folder / f"{name}.smt2"
    failure = child("--export", name, path) if not path.exists() else ""
    if not path.exists():
        return [f"{name:34} export failed: {failure}"], False
    expected = PROOFS[name][2]
    lines, good = [], True
    for solver in SOLVERS:
        start = time.monotonic()
        answer = child("--solve", solver, path)
        seconds = time.monotonic() - start
        good &= answer == expected
        note = "" if answer == expected else f"   FAILED, expected {expected}"
        lines.append(f"{name:34} {solver:9} {answer:6} {seconds:7.2f} s{note}")
    return lines, good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the proofs and do nothing else")
    parser.add_argument("--only", metavar="NAME", action="append", help="run this proof (may be repeated)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="proofs at a time (default: all CPUs)")
    parser.add_argument("--export", nargs=2, metavar=("NAME", "FILE"), help="write one proof as SMT-LIB")
    parser.add_argument("--solve", nargs=2, metavar=("SOLVER", "FILE"), help="run one solver on an SMT-LIB file")
    options = parser.parse_args()
    for name in [*(options.only or []), *(options.export or [])[:1]]:
        if name not in PROOFS:
            parser.error(f"there is no proof {name}; --list names them")
    if options.solve and options.solve[0] not in SOLVERS:
        parser.error(f"there is no solver {options.solve[0]}: {' or '.join(SOLVERS)}")
    if options.list:
        for name, (module, parameters, expected) in PROOFS.items():
            settings = " ".join(f"{key}={value}" for key, value in parameters.items())
            print(f"{name:34} {expected:6} {module} {settings}")
        return 0
    if options.export:
        export(options.export[0], pathlib.Path(options.export[1]))
        return 0
    if options.solve:
        solve(*options.solve)
        return 0

    start = time.monotonic()
    good = True
    names = options.only or list(PROOFS)
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
            for lines, right in pool.map(lambda name: prove(name, pathlib.Path(folder)), names):
                print("\n".join(lines), flush=True)
                good &= right
    print(f"{len(names)} proofs, {time.monotonic() - start:.1f} s: {'all as expected' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
