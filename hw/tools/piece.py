# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Synthesizes one module for Xilinx 7 series with others left out as black boxes: see bench/hw/src/synthesis.rs.

Reads a job from piece.json in the working folder. Writes the black boxes with their parameters, each with the number of its instances, to boxes.json;
and, unless the job says "elaborate", the counts of the cells to cells.json.
"""

import json
import os
import sys


def main():
    from pyosys import libyosys

    with open("piece.json") as file:
        job = json.load(file)
    design = libyosys.Design()

    def run(command):
        libyosys.run_pass("tee -q -a yosys.log " + command, design)

    open("yosys.log", "w").close()
    parameters = [f"-G {name}={value}" for name, value in job["parameters"]]
    boxes = [f"--blackboxed-module {box}" for box in job["boxes"]]
    # Without --no-implicit-memories, memories that slang sees in registers hide the registers of DSP slices.
    run(" ".join(["read_slang --no-implicit-memories --top", job["top"], *parameters, *boxes, *job["sources"]]))
    run("write_json elaborated.json")
    with open("elaborated.json") as file:
        modules = json.load(file)["modules"]
    boxes = {}
    for cell in modules[job["top"]]["cells"].values():
        name = cell["type"].split("$")[0]
        if name in job["boxes"]:
            kind = json.dumps([name, cell["parameters"]], sort_keys=True)
            boxes[kind] = boxes.get(kind, 0) + 1
    with open("boxes.json", "w") as file:
        json.dump([[*json.loads(kind), count] for kind, count in boxes.items()], file)
    if job["elaborate"]:
        return
    # slang leaves the parameters of a black box at its instances, which Yosys then looks for in vain.
    for box in job["boxes"]:
        names = {name for kind in boxes for name in json.loads(kind)[1] if json.loads(kind)[0] == box}
        for name in sorted(names):
            run(f"setparam -unset {name} t:{box}*")
    run(f"synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top {job['top']}")
    run("write_json netlist.json")
    with open("netlist.json") as file:
        modules = json.load(file)["modules"]
    counts = {}
    for cell in modules[job["top"]]["cells"].values():
        if cell["type"].split("$")[0] not in job["boxes"] and not cell["type"].startswith("$"):
            counts[cell["type"]] = counts.get(cell["type"], 0) + 1
    with open("cells.json", "w") as file:
        json.dump(counts, file)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # Yosys raises its own kinds, whose text is in its log.
        if os.path.exists("yosys.log"):
            with open("yosys.log") as log:
                print(log.read()[-2000:])
        sys.exit(f"{type(error).__name__}: {error}")
