# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Synthesizes a core with Yosys and slang and prints what it takes: see crates/cores/src/synthesis.rs."""

import argparse
import json
import os
import re
import subprocess
import sys

MARK = "== toroid =="

# What a cell counts as. Cells that are not here are carry chains of Xilinx, wide multiplexers, constants.
XC7 = {
    "lut": r"LUT[1-6]|INV",
    "ff": r"FD[RSCP]E(_1)?",
    "lutram": r"SRL16E|SRLC(16|32)E|RAM(32|64|128|256)X?1?[MSD]\w*",
    "dsp": r"DSP48E1",
    "ramb18": r"RAMB18E1",
    "ramb36": r"RAMB36E1",
}
ECP5 = {
    "lut": r"LUT4|CCU2C",
    "ff": r"TRELLIS_FF",
    "lutram": r"TRELLIS_DPR16X4",
    "dsp": r"MULT(18X18|9X9)D",
    "ramb18": r"DP16KD|PDPW16KD",
    "ramb36": r"(?!)",
}

# Cells that take several look-up tables.
WEIGHTS = {"CCU2C": 2, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM32M": 4, "RAM64M": 4, "TRELLIS_DPR16X4": 2}


# Repeated modules of fewer cells than this, as slang gives them, are mapped with what is around them.
LEAST_KEPT = 32


def merge(modules, top):
    """Of equal modules only one, in the order in which they are needed: slang makes a module of every instance."""
    first, names = {}, {}

    def visit(name):
        if name not in names:
            module = modules[name]
            for cell in module["cells"].values():
                if cell["type"] in modules:
                    cell["type"] = visit(cell["type"])
            cells = [(cell["type"], cell["parameters"], cell["connections"]) for cell in module["cells"].values()]
            starts = [(net["attributes"]["init"], net["bits"]) for net in module["netnames"].values() if "init" in net["attributes"]]
            memories = [(each["width"], each["size"], each["start_offset"]) for each in module.get("memories", {}).values()]
            key = json.dumps([name.split("$")[0], module["ports"], cells, starts, memories], sort_keys=True)
            names[name] = first.setdefault(key, name)
        return names[name]

    visit(top)
    return {name: modules[name] for name in first.values()}


def keep_repeated(modules, top):
    """Has the outermost modules that stand at several places mapped by themselves; all others are flattened."""
    counts, sizes = {}, {}

    def count(name):
        counts[name] = counts.get(name, 0) + 1
        kinds = [cell["type"] for cell in modules[name]["cells"].values()]
        sizes[name] = sum(count(kind) if kind in modules else 1 for kind in kinds)
        return sizes[name]

    def keep(name):
        if counts[name] > 1 and sizes[name] >= LEAST_KEPT:
            modules[name]["attributes"]["keep_hierarchy"] = format(1, "032b")
        else:
            for cell in modules[name]["cells"].values():
                if cell["type"] in modules:
                    keep(cell["type"])

    count(top)
    keep(top)


def leaves(modules, top, memo):
    """The leaf cells of a module, with those of the modules in it as often as they stand there."""
    if top not in memo:
        total = {}
        for cell in modules[top]["cells"].values():
            kind = cell["type"]
            below = {kind: 1}
            if kind in modules and not int(modules[kind]["attributes"].get("blackbox", "0"), 2):
                if not int(modules[kind]["attributes"].get("whitebox", "0"), 2):
                    below = leaves(modules, kind, memo)
            for name, count in below.items():
                total[name] = total.get(name, 0) + count
        memo[top] = total
    return memo[top]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--top", required=True)
    parser.add_argument("--device", choices=["xc7", "ecp5"], required=True)
    parser.add_argument("--hierarchical", action="store_true")
    parser.add_argument("--route", type=int, metavar="SEED")
    parser.add_argument("--nextpnr", action="append", default=[], help="a word of the command for xc7")
    parser.add_argument("--parameter", action="append", default=[])
    parser.add_argument("sources", nargs="+")
    options = parser.parse_args()

    from pyosys import libyosys

    from route import route

    design = libyosys.Design()

    def run(command):
        libyosys.run_pass("tee -q -a yosys.log " + command, design)

    open("yosys.log", "w").close()
    quoted = "".join(f" -G {parameter}" for parameter in options.parameter)
    # Without this option, memories that slang sees in registers hide the registers of DSP slices.
    hierarchy = "--keep-hierarchy" if options.hierarchical else ""
    run(f"read_slang --no-implicit-memories {hierarchy} --top {options.top}{quoted} " + " ".join(options.sources))
    if options.route is not None:
        results = route(run, options.top, options.device, options.nextpnr, options.route)
        print(MARK)
        print(json.dumps(results))
        return
    if options.hierarchical:
        run("write_json elaborated.json")
        with open("elaborated.json") as file:
            netlist = json.load(file)
        netlist["modules"] = merge(netlist["modules"], options.top)
        keep_repeated(netlist["modules"], options.top)
        with open("merged.json", "w") as file:
            json.dump(netlist, file)
        design = libyosys.Design()
        run("read_json merged.json")
    if options.device == "xc7":
        run(f"synth_xilinx -family xc7 -noiopad -noclkbuf -flatten -top {options.top}")
        kinds = XC7
    else:
        run(f"synth_ecp5 -top {options.top}")
        kinds = ECP5
    run("write_json cells.json")
    with open("cells.json") as file:
        modules = json.load(file)["modules"]
    cells = leaves(modules, options.top, {})
    results = {
        name: sum(count * WEIGHTS.get(kind, 1) for kind, count in cells.items() if re.fullmatch(pattern, kind))
        for name, pattern in kinds.items()
    }
    print(MARK)
    print(json.dumps(results))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # Yosys raises its own kinds, whose text is in its log.
        if os.path.exists("yosys.log"):
            with open("yosys.log") as log:
                print(log.read()[-4000:])
        sys.exit(f"{type(error).__name__}: {error}")
