"""Captures NVMe/TCP traffic of the loopback interface, and has tshark's dissector judge it."""

import re
import signal
import struct
import subprocess
import time
from dataclasses import dataclass, field


class Capture:
    """A running dumpcap for one TCP port."""

    def __init__(self, port, path):
        self.process = subprocess.Popen(
            ["dumpcap", "-q", "-i", "lo", "-s", "0", "-B", "128", "-f", f"tcp port {port}", "-w", path],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.messages = ""
        while "File: " not in self.messages:
            line = self.process.stderr.readline()
            if not line:
                raise RuntimeError(f"dumpcap: {self.messages}")
            self.messages += line

    def stop(self):
        """Ends the capture; returns how many packets it lost."""
        time.sleep(0.3)
        self.process.send_signal(signal.SIGINT)
        try:
            self.messages += self.process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        counts = re.search(r"received/dropped on interface .*: (\d+)/(\d+)", self.messages)
        return int(counts[2]) if counts else -1


@dataclass
class Findings:
    """What tshark found in a capture."""

    pdus: int = 0
    header_digests: int = 0
    data_digests: int = 0
    undecoded: int = 0
    problems: list = field(default_factory=list)


# The values of tshark's digest status.
GOOD, BAD = "1", "0"
FIELDS = ["frame.number", "nvme-tcp.type", "nvme-tcp.hdgst.status", "nvme-tcp.ddgst.status", "_ws.malformed", "_ws.expert.severity",
          "_ws.expert.message"]


def check_encrypted(path, port):
    """Looks at what the target has sent first on each connection, and counts records: TLS and nothing else."""
    command = ["tshark", "-n", "-r", str(path), "-d", f"tcp.port=={port},tls", "-Y", f"tcp.srcport=={port} && tcp.len>0", "-T", "fields",
               "-e", "tcp.stream", "-e", "tcp.seq", "-e", "tcp.payload", "-e", "tls.record.opaque_type", "-E", "occurrence=a"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    findings = Findings()
    if done.returncode != 0:
        findings.problems.append(f"tshark ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    for line in done.stdout.splitlines():
        stream, place, payload, records = (line.split("\t") + [""] * 4)[:4]
        # A handshake record or an alert, of TLS.
        if place == "1" and not payload.startswith(("1603", "1503")):
            findings.problems.append(f"stream {stream}: the target sends {payload[:16]}, which is not TLS")
        findings.pdus += len(records.split(",")) if records else 0
    return findings


def check(path, port):
    """Dissects a capture; digests are computed and compared."""
    command = ["tshark", "-n", "-r", str(path), "-d", f"tcp.port=={port},nvme-tcp", "-o", "nvme-tcp.check_hdgst:TRUE",
               "-o", "nvme-tcp.check_ddgst:TRUE", "-Y", "nvme-tcp || _ws.malformed", "-T", "fields", "-E", "occurrence=a",
               "-E", "aggregator=,"]
    for name in FIELDS:
        command += ["-e", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    findings = Findings()
    if done.returncode != 0:
        findings.problems.append(f"tshark ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    for line in done.stdout.splitlines():
        values = (line.split("\t") + [""] * len(FIELDS))[:len(FIELDS)]
        frame, types, headers, data, malformed, severities, messages = values
        headers, data = headers.split(","), data.split(",")
        findings.pdus += len(types.split(",")) if types else 0
        findings.header_digests += headers.count(GOOD)
        findings.data_digests += data.count(GOOD)
        if "Unregistered hf!" in messages:
            # Wireshark 4.0 lacks fields of some features: a bug of its own, which ends the frame's dissection.
            findings.undecoded += 1
        elif malformed or "Malformed" in messages:
            findings.problems.append(f"frame {frame}: malformed")
        if BAD in headers or BAD in data:
            findings.problems.append(f"frame {frame}: bad digest")
    return findings


def crc32c(data):
    """CRC-32C of some bytes, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def write_pcap(path, port, segments):
    """A capture of one TCP connection; `segments`: whether the host sends, and the bytes."""
    records, sequence = [], [1, 1]
    for number, (from_host, data) in enumerate([(True, None), (False, None), *segments]):
        flags = (0x02 if from_host else 0x12) if data is None else 0x18
        ports = (40000, port) if from_host else (port, 40000)
        mine, its = (0, 1) if from_host else (1, 0)
        acknowledged = 0 if flags == 0x02 else sequence[its]
        start = 0 if data is None else sequence[mine]
        data = data or b""
        sequence[mine] += len(data)
        tcp = struct.pack(">HHIIBBHHH", *ports, start, acknowledged, 5 << 4, flags, 65535, 0, 0) + data
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), number, 0, 64, 6, 0, *2 * [bytes([127, 0, 0, 1])]) + tcp
        records.append(struct.pack("<IIII", number, 0, len(ip), len(ip)) + ip)
    raw_ip = 101
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, raw_ip) + b"".join(records))


def self_test(folder):
    """The check must see what is wrong in damaged captures, and nothing in the same one undamaged. Returns a remark."""
    digests = 0b11
    ic_request = struct.pack("<BBBBIHBBI", 0, 0, 128, 0, 128, 0, 0, digests, 0) + bytes(112)
    ic_response = struct.pack("<BBBBIHBBI", 1, 0, 128, 0, 128, 0, 0, digests, 0x20000) + bytes(112)
    data = bytes(range(64)) * 16
    sqe = struct.pack("<BBH", 0x7F, 0x40, 7) + b"\x01" + bytes(19) + struct.pack("<QI3xB", 0, len(data), 0x01) + bytes(24)
    header = struct.pack("<BBBBI", 4, 0b11, 72, 76, 76 + len(data) + 4) + sqe
    command = bytearray(header + crc32c(header) + data + crc32c(data))
    response_header = struct.pack("<BBBBI", 5, 0b1, 24, 0, 28) + bytes(8) + struct.pack("<HHHH", 0, 0, 7, 0)
    response = bytearray(response_header + crc32c(response_header))
    port = 4420

    def found(edit):
        pdus = [bytearray(ic_request), bytearray(ic_response), command[:], response[:]]
        edit(pdus)
        path = folder / "self-test.pcap"
        write_pcap(path, port, [(place % 2 == 0, bytes(pdu)) for place, pdu in enumerate(pdus)])
        return check(path, port)

    def flip(pdu, at, by=0x10):
        def edit(pdus):
            pdus[pdu][at] ^= by
        return edit

    def cut(pdus):
        # A response that says that it is shorter than its header.
        pdus[3][4:8] = struct.pack("<I", 12)
        del pdus[3][12:]

    clean = found(lambda pdus: None)
    if clean != Findings(pdus=4, header_digests=2, data_digests=1):
        raise RuntimeError(f"undamaged capture: {clean}")
    for what, edit in (("data", flip(2, 100)), ("data digest", flip(2, -1)), ("command", flip(2, 50)), ("response", flip(3, 12)),
                       ("header digest", flip(3, -1)), ("length", cut)):
        damaged = found(edit)
        if not damaged.problems:
            raise RuntimeError(f"damage of the {what} was not found: {damaged}")
    return "6 damaged captures found out"
