# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Energy of a pipeline by switching activity: see bench/hw/src/energy.rs.

Reads a job from energy.json in the working folder: the module on top, its parameters and sources, the liberty, the clock's period, and runs, each a list
of inputs by cycle (hexadecimal) with the outputs expected some cycles later. Maps the module to the liberty's cells, simulates the netlist with the cells' own
functions, and gives what OpenSTA's power report makes of the toggles of every net. Writes results.json.

The netlist must be a pipeline: without a loop, every net is a string of bits, one per cycle, and a register shifts it by one. That
makes simulation a matter of one operation on long integers a cell. Delays are zero, so that glitches do not count.
"""

import json
import os
import re
import subprocess
import sys


def functions(liberty):
    """The cells' inputs and functions: a Python expression in the inputs for each output, or the name of the data input of a flip-flop."""
    cells = {}
    for part in re.split(r"\n\s*cell \(", liberty)[1:]:
        name = re.match(r"\"?(\w+)", part).group(1)
        state = re.search(r"next_state\s*:\s*\"(\w+)\"", part)
        outputs = {}
        for pin in re.split(r"\n\s*pin \(", part)[1:]:
            function = re.search(r"\n\s*function\s*:\s*\"([^\"]*)\"", pin)
            if function:
                outputs[re.match(r"\"?(\w+)", pin).group(1)] = function.group(1)
        cells[name] = (outputs, state.group(1) if state else None)
    return cells


def simulate(module, cells, inputs, cycles):
    """The values of all nets, as integers of one bit a cycle."""
    mask = (1 << cycles) - 1
    values = {"0": 0, "1": mask, "x": 0}
    for name, port in module["ports"].items():
        if port["direction"] == "input" and name != "clk_i":
            for position, bit in enumerate(port["bits"]):
                values[bit] = sum((word >> position & 1) << cycle for cycle, word in enumerate(inputs[name]))
        elif name == "clk_i":
            values[port["bits"][0]] = 0
    waiting = list(module["cells"].values())
    compiled = {}
    users, lacking = {}, {}
    ready = []
    for number, cell in enumerate(waiting):
        wanted = {
            bits[0]
            for pin, bits in cell["connections"].items()
            if cell["port_directions"][pin] == "input" and bits and bits[0] not in values
        }
        lacking[number] = len(wanted)
        for bit in wanted:
            users.setdefault(bit, []).append(number)
        if not wanted:
            ready.append(number)
    done = 0
    while ready:
        number = ready.pop()
        cell = waiting[number]
        done += 1
        outputs, state = cells[cell["type"]]
        pins = {pin: bits[0] for pin, bits in cell["connections"].items() if bits}
        for pin, function in outputs.items():
            if pin not in pins:
                continue
            if state is not None:
                value = values[pins[state]] << 1 & mask
                if function == "IQN":
                    value ^= mask
            else:
                if function not in compiled:
                    compiled[function] = compile(re.sub(r"\b([01])\b", r"constant\1", function).replace("!", "~"), function, "eval")
                names = {name: values[bit] for name, bit in pins.items() if bit in values}
                names |= {"constant0": 0, "constant1": mask}
                value = eval(compiled[function], {"__builtins__": {}}, names) & mask
            values[pins[pin]] = value
            for user in users.get(pins[pin], []):
                lacking[user] -= 1
                if not lacking[user]:
                    ready.append(user)
    if done != len(waiting):
        sys.exit(f"{len(waiting) - done} cells wait for each other: the netlist is no pipeline")
    return values


def words(port, values, cycles):
    """The values of a port by cycle."""
    result = [0] * cycles
    for position, bit in enumerate(port["bits"]):
        value = values[bit]
        for cycle in range(cycles):
            result[cycle] |= (value >> cycle & 1) << position
    return result


def power(job, module, values, cycles, first):
    """Watts by kind, of OpenSTA with the toggles of all nets after the cycle `first`."""
    lines = [
        f"read_liberty {job['liberty']}",
        "read_verilog mapped.v",
        f"link_design {job['top']}",
        f"create_clock -name clk -period {job['period_ns']} [get_ports clk_i]",
        "set_input_transition 0.05 [all_inputs]",
    ]
    counted = cycles - first - 1

    def activity(bit):
        value = values[bit] >> first
        toggles = (value ^ value >> 1) & ((1 << counted) - 1)
        return toggles.bit_count() / counted, (value & ((1 << counted) - 1)).bit_count() / counted

    read = {bit for port in module["ports"].values() if port["direction"] == "output" for bit in port["bits"]}
    for cell in module["cells"].values():
        read |= {bits[0] for pin, bits in cell["connections"].items() if bits and cell["port_directions"][pin] == "input"}
    total = 0.0
    for name, port in module["ports"].items():
        if port["direction"] == "input" and name != "clk_i":
            for position, bit in enumerate(port["bits"]):
                pin = name if len(port["bits"]) == 1 else f"{name}[{position}]"
                toggles, duty = activity(bit)
                lines.append(f"set_power_activity -input_ports [get_ports {{{pin}}}] -activity {toggles:.5f} -duty {duty:.5f}")
    nets = 0
    for name, cell in module["cells"].items():
        for pin, bits in cell["connections"].items():
            if cell["port_directions"][pin] == "output" and bits and bits[0] in read:
                toggles, duty = activity(bits[0])
                total += toggles
                nets += 1
                lines.append(f"set_power_activity -pins [get_pins {{{name}/{pin}}}] -activity {toggles:.5f} -duty {duty:.5f}")
    lines += ["report_power -digits 8", "exit"]
    with open("power.tcl", "w") as file:
        file.write("\n".join(lines) + "\n")
    said = subprocess.run([job["sta"], "-no_splash", "-exit", "power.tcl"], capture_output=True, text=True, check=False).stdout
    result = {"toggles_per_net": total / max(nets, 1)}
    for group in ("Sequential", "Combinational"):
        numbers = re.search(rf"^{group}\s+(\S+)\s+(\S+)\s+(\S+)", said, re.MULTILINE)
        if not numbers:
            sys.exit("OpenSTA gives no power: " + said[-1500:])
        kinds = ("internal", "switching", "leakage")
        result[group.lower()] = dict(zip(kinds, (float(number) for number in numbers.groups()), strict=True))
    return result


def main():
    from pyosys import libyosys

    with open("energy.json") as file:
        job = json.load(file)
    design = libyosys.Design()

    def run(command):
        libyosys.run_pass("tee -q -a yosys.log " + command, design)

    open("yosys.log", "w").close()
    parameters = [f"-G {name}={value}" for name, value in job["parameters"]]
    run(" ".join(["read_slang --no-implicit-memories --top", job["top"], *parameters, *job["sources"]]))
    run(f"synth -flatten -top {job['top']}")
    run(f"dfflibmap -liberty {job['liberty']}")
    run(f"abc -liberty {job['liberty']} -D {1000 * job['period_ns']:.0f}")
    for command in ["setundef -zero", "splitnets", "opt_clean -purge", "hilomap -hicell LOGIC1_X1 Z -locell LOGIC0_X1 Z"]:
        run(command)
    # For the directions of the cells' ports.
    run(f"read_liberty -lib {job['liberty']}")
    run(f"select {job['top']}")
    run("write_verilog -noattr -noexpr -selected mapped.v")
    run("select -clear")
    run("write_json mapped.json")
    with open("mapped.json") as file:
        module = json.load(file)["modules"][job["top"]]
    with open(job["liberty"]) as file:
        text = file.read()
    cells = functions(text)
    areas = {
        re.match(r"\"?(\w+)", part).group(1): float(re.search(r"\n\s*area\s*:\s*([\d.]+)", part).group(1))
        for part in re.split(r"\n\s*cell \(", text)[1:]
    }
    kinds = {}
    for cell in module["cells"].values():
        kinds[cell["type"]] = kinds.get(cell["type"], 0) + 1
    unknown = [kind for kind in kinds if kind not in cells]
    if unknown:
        sys.exit(f"no function of {unknown}")
    results = {
        "cells": sum(kinds.values()),
        "flip_flops": sum(count for kind, count in kinds.items() if cells[kind][1]),
        "area_um2": sum(count * areas[kind] for kind, count in kinds.items()),
        "runs": {},
    }
    for entry in job["runs"]:
        cycles = entry["cycles"]
        inputs = {name: [int(word, 16) for word in column] for name, column in entry["inputs"].items()}
        values = simulate(module, cells, inputs, cycles)
        latency = job["latency"]
        for name, expected in entry["outputs"].items():
            found = words(module["ports"][name], values, cycles)
            for cycle in range(latency, cycles):
                if found[cycle] != int(expected[cycle - latency], 16):
                    sys.exit(f"{entry['name']}: {name} is {found[cycle]:x} in cycle {cycle}, expected {expected[cycle - latency]}")
        results["runs"][entry["name"]] = power(job, module, values, cycles, latency + 1)
    with open("results.json", "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # Yosys raises its own kinds, whose text is in its log.
        if os.path.exists("yosys.log"):
            with open("yosys.log") as log:
                print(log.read()[-2000:])
        sys.exit(f"{type(error).__name__}: {error}")
