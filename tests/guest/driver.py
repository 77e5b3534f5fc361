"""Runs the cases: boots guests, serves drives, captures the traffic and has tshark check it. `tests/guest/run` starts it."""

import argparse
import base64
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import capture
from cases import CASES, GUESTS

HERE = Path(__file__).resolve().parent
NQN = "nqn.2026-11.example.toroid:guest"
# What the kernel of the guest must not say, and what it may say only where a case has the target fail.
KERNEL_TROUBLE = re.compile(r"WARNING:|BUG:|Oops|Call Trace|hung_task|blocked for more than|general protection|duplicate IDs|digest error|"
                            r"bogus|mismatch|invalid.*(cntlid|data len|r2t)|unsupported pdu", re.IGNORECASE)
# Linux measures a Keep Alive from its deadline less its timeout. One that a reset ends before it starts has no deadline, so that the
# measure is the time since boot, whose counter begins five minutes before 2^32 ms.
KEEP_ALIVE_TIME = re.compile(r"long keepalive RTT \(([0-9]+) ms\)")
NEVER_STARTED = range(2**32 - 5 * 60_000, 2**32)
IO_TROUBLE = re.compile(r"I/O error|EXT4-fs (error|warning)|timeout|error recovery|econnecting|keep-alive|keepalive", re.IGNORECASE)


class Failure(Exception):
    """Why a case failed."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stop(process, by=signal.SIGTERM, seconds=10):
    """Ends a process of ours, by force if need be; says whether it went by itself."""
    if process is None or process.poll() is not None:
        return True
    process.send_signal(by)
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


class Guest:
    """A Linux machine in QEMU that runs scripts. 10.0.2.2 in it is 127.0.0.1 here."""

    def __init__(self, place, index, image, logs, work):
        self.host = GUESTS[place]
        self.host_id = self.host.rsplit(":", 1)[1]
        self.buffer = b""
        overlay = work / f"guest{index}"
        (overlay / "lib").mkdir(parents=True)
        shutil.copy(HERE / "init", overlay / "init")
        shutil.copy(HERE / "lib.sh", overlay / "lib" / "case.sh")
        (overlay / "init").chmod(0o755)
        extra = subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"], input=b"init\nlib/case.sh\n", cwd=overlay,
                               stdout=subprocess.PIPE, check=True).stdout
        initrd = overlay / "initrd"
        with open(initrd, "wb") as file:
            file.write((image / "base.cpio").read_bytes())
            file.write(extra)
        port = overlay / "port"
        # No CMPXCHG16B and one processor: QEMU 7.2's emulation gets the flags of the former wrong, and patches code unsafely with more.
        self.qemu = subprocess.Popen(
            ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-cpu", "max,-cx16", "-smp", "1", "-m", "640", "-nodefaults",
             "-no-user-config", "-display", "none", "-no-reboot", "-kernel", image / "vmlinux", "-initrd", initrd,
             "-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr nowatchdog random.trust_cpu=on "
             "cryptomgr.notests 8250.nr_uarts=1 net.ifnames=0 tsc=reliable no_timer_check rcupdate.rcu_expedited=1",
             "-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0,romfile=",
             "-chardev", f"file,id=console,path={logs}/guest{index}.console.log", "-serial", "chardev:console",
             "-chardev", f"socket,id=port,path={port},server=on,wait=off", "-device", "virtio-serial-pci",
             "-device", "virtserialport,chardev=port"],
            stdin=subprocess.DEVNULL, stdout=open(logs / f"guest{index}.qemu.log", "wb"), stderr=subprocess.STDOUT)
        until = time.monotonic() + 10
        while True:
            try:
                self.port = socket.socket(socket.AF_UNIX)
                self.port.connect(str(port))
                break
            except OSError:
                if time.monotonic() > until or self.qemu.poll() is not None:
                    stop(self.qemu)
                    raise Failure("QEMU does not start")
                time.sleep(0.05)
        self.kernel = None

    def line(self, until):
        """The next line from the guest."""
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0:
                raise Failure("the guest took too long")
            self.port.settimeout(left)
            try:
                received = self.port.recv(65536)
            except TimeoutError:
                continue
            if not received:
                raise Failure("the guest is gone")
            self.buffer += received
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode(errors="replace").rstrip("\r")

    def ready(self, seconds=120):
        until = time.monotonic() + seconds
        while not self.kernel:
            line = self.line(until)
            if line.startswith("\x01ready "):
                self.kernel = line.split()[1]

    def run(self, script, variables, seconds, requests, log):
        """Runs a script; `requests` answers what it asks of this machine. Returns its exit status."""
        values = {"HOST": self.host, "HOSTID": self.host_id, **variables}
        head = "".join(f"{name}='{value}'\n" for name, value in values.items()) + ". /lib/case.sh\n"
        self.port.settimeout(30)
        self.port.sendall(base64.b64encode((head + script).encode()) + b"\n")
        until = time.monotonic() + seconds
        while True:
            line = self.line(until)
            if line.startswith("\x01rc "):
                return int(line.split()[1])
            if line.startswith("\x01host "):
                status, output = requests(line.split()[1:])
                log.write(f"host: {line[6:120]} -> {status}\n{output}")
                self.port.settimeout(30)
                self.port.sendall(f"{status} ".encode() + base64.b64encode(output.encode()) + b"\n")
            else:
                log.write(line + "\n")
                log.flush()

    def close(self):
        stop(self.qemu, signal.SIGKILL)
        self.port.close()


class Setting:
    """What a case has on this machine: a folder, `toroid drive serve`, and what its guests may ask for."""

    def __init__(self, name, toroid, logs, work):
        self.name, self.toroid, self.logs = name, toroid, logs
        self.folder = work / name
        self.folder.mkdir()
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"nvme+tcp://{self.address}/{NQN}"
        self.nqn = NQN
        self.serve_args = []
        self.target = None
        self.burners = []
        self.log = open(logs / f"{name}.log", "w")
        self.serve_log = open(logs / f"{name}.serve.log", "wb")

    def cli(self, *args, seconds=120):
        """Runs a command of toroid in the case's folder and returns its output; it must succeed."""
        command = [str(self.toroid), "-q", *map(str, args)]
        done = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        self.log.write(f"host: toroid {' '.join(command[1:])} -> {done.returncode}\n{done.stdout}{done.stderr}")
        if done.returncode != 0:
            raise Failure(f"toroid {' '.join(command[2:])}: {done.stderr.strip()}")
        return done.stdout

    def format(self, name="drive.img", **options):
        size = {"size": "64MiB", "swap": "16MiB", **options}
        self.cli("drive", "format", name, *[f"--{key}={value}" for key, value in size.items()])

    def serve(self, *args):
        """Starts the target and waits until it accepts connections. Without arguments: as the last time."""
        if args:
            self.serve_args = [str(arg) for arg in args]
        self.target = subprocess.Popen([self.toroid, "drive", "serve", *self.serve_args], cwd=self.folder, stdin=subprocess.DEVNULL,
                                       stdout=self.serve_log, stderr=subprocess.STDOUT,
                                       env={**os.environ, "RUST_LOG": os.environ.get("RUST_LOG", "info")})
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.target.poll() is not None or time.monotonic() > until:
                    raise Failure(f"toroid drive serve does not start: see {self.logs / self.name}.serve.log")
                time.sleep(0.05)

    def serve_image(self, *extra, image="drive.img"):
        self.serve(image, "--nqn", NQN, "--listen", self.address, *extra)

    def serve_config(self, text):
        """`text`: what follows the address in the configuration."""
        (self.folder / "serve.toml").write_text(f'listen = "{self.address}"\n{text}')
        self.serve("--config", "serve.toml")

    def request(self, words):
        """Answers a guest's `host WORDS`: exit status and output."""
        verb, *args = words
        if verb == "kill":
            stop(self.target, signal.SIGKILL)
        elif verb == "serve":
            self.serve()
        elif verb == "pause":
            self.target.send_signal(signal.SIGSTOP)
        elif verb == "resume":
            self.target.send_signal(signal.SIGCONT)
        elif verb == "burn":
            # Twice as many busy processes as there are cores.
            self.burners = [subprocess.Popen(["timeout", args[0], sys.executable, "-c", "while True: pass"])
                            for _ in range(2 * os.cpu_count())]
        elif verb == "burnt":
            for burner in self.burners:
                stop(burner)
            self.burners = []
        else:
            return 1, f"no such request: {verb}\n"
        return 0, ""

    def close(self):
        """Ends what runs. The target must end by itself when it is asked to, with exit status 0."""
        for burner in self.burners:
            stop(burner)
        if self.target and self.target.poll() is None:
            self.target.send_signal(signal.SIGCONT)
            if not stop(self.target, signal.SIGTERM, 20):
                raise Failure("the target does not end on SIGTERM")
        status = self.target.returncode if self.target else 0
        if status not in (0, -signal.SIGKILL):
            raise Failure(f"the target ended with status {status}")


class Runner:
    """The guests, and what all cases share."""

    def __init__(self, options, work):
        self.options, self.work = options, work
        self.image = options.image
        self.guests = {}
        self.boots = 0

    def boot(self, count):
        """Has guests 0 to `count` - 1 run."""
        for place in range(count):
            if place not in self.guests:
                self.guests[place] = Guest(place, self.boots, self.image, self.options.logs, self.work)
                self.boots += 1
        for place in range(count):
            try:
                self.guests[place].ready()
            except Failure as failure:
                self.drop(place)
                raise Failure(f"guest {place} does not boot: {failure}")
        return [self.guests[place] for place in range(count)]

    def drop(self, place):
        self.guests.pop(place).close()

    def run(self, name, case):
        """Runs one case with its checks; raises what failed. Returns a remark."""
        guests = self.boot(case.guests)
        setting = Setting(name, self.options.toroid, self.options.logs, self.work)
        pcap = self.options.logs / f"{name}.pcapng"
        captured = capture.Capture(setting.port, pcap)
        try:
            try:
                self.in_guests(setting, case, guests)
                case.after(setting)
            finally:
                setting.close()
        finally:
            dropped = captured.stop()
            setting.log.close()
            setting.serve_log.close()
        self.check_logs(setting, KERNEL_TROUBLE if case.errors else re.compile(f"{KERNEL_TROUBLE.pattern}|{IO_TROUBLE.pattern}", re.IGNORECASE))
        if dropped:
            raise Failure(f"the capture lost {dropped} packets")
        found = capture.check_encrypted(pcap, setting.port) if case.encrypted else capture.check(pcap, setting.port)
        if found.problems:
            raise Failure("tshark: " + "; ".join(found.problems[:5]))
        if found.pdus < case.pdus:
            raise Failure(f"tshark decoded {found.pdus} PDUs, expected {case.pdus} at least")
        if case.digests and not (found.header_digests and found.data_digests):
            raise Failure("the capture has no digests")
        if not self.options.keep:
            pcap.unlink()
        undecoded = f", {found.undecoded} PDUs that tshark cannot decode" if found.undecoded else ""
        return f"{found.pdus} PDUs, {found.header_digests + found.data_digests} digests{undecoded}"

    def in_guests(self, setting, case, guests):
        case.before(setting)
        script = (HERE / "cases" / f"{case.script or setting.name}.sh").read_text()
        values = {"PORT": setting.port, "NQN": setting.nqn, **case.variables(setting)}
        until = time.monotonic() + case.seconds
        if case.guests == 1:
            self.one(0, guests[0], setting, script, values, case, until)
            return
        failures = []

        def run(place):
            try:
                self.one(place, guests[place], setting, script, {**values, "GUEST": place}, case, until)
            except Exception as failure:  # a thread's failures are the case's
                failures.append(failure)
        threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(case.guests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def one(self, place, guest, setting, script, values, case, until):
        def requests(words):
            answer = case.requests.get(words[0])
            try:
                return answer(setting, *words[1:]) if answer else setting.request(words)
            except Failure as failure:
                return 1, f"{failure}\n"
        log = setting.log if case.guests == 1 else open(self.options.logs / f"{setting.name}.guest{place}.log", "w")
        try:
            status = guest.run(script, values, until - time.monotonic(), requests, log)
        except (Failure, OSError):
            self.drop(place)
            raise
        finally:
            log.flush()
        if status != 0:
            log_text = Path(log.name).read_text()
            said = [line for line in log_text.splitlines() if line.startswith("FAILED: ")]
            raise Failure(said[0][8:] if said else f"exit status {status} in the guest: see {log.name}")

    @staticmethod
    def is_trouble(line, trouble):
        time = KEEP_ALIVE_TIME.search(line)
        return trouble.search(line) and not (time and int(time[1]) in NEVER_STARTED)

    def check_logs(self, setting, trouble):
        for log in self.options.logs.glob(f"{setting.name}*.log"):
            if log.name.endswith(".serve.log"):
                if re.search(r"panicked at", log.read_text(errors="replace")):
                    raise Failure(f"the target panicked: see {log}")
                continue
            for line in log.read_text(errors="replace").splitlines():
                if line.startswith("dmesg: ") and self.is_trouble(line, trouble):
                    raise Failure(f"the guest's kernel says: {line[7:]}")

    def close(self):
        for place in list(self.guests):
            self.drop(place)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--toroid", type=Path, required=True)
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in CASES and name != "self-test"]
    if unknown:
        sys.exit(f"no such case: {', '.join(unknown)}; there are: self-test, {', '.join(CASES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    passed = failed = 0

    def report(name, began, failure, remark=""):
        nonlocal passed, failed
        passed, failed = passed + (failure is None), failed + (failure is not None)
        print(f"{'FAILED' if failure else 'ok':7}{name:12}{time.monotonic() - began:6.1f} s  {failure or remark}", flush=True)

    began = time.monotonic()
    if not options.names or "self-test" in options.names:
        try:
            report("self-test", began, None, capture.self_test(options.work))
        except Exception as failure:
            report("self-test", began, failure)
    runner = Runner(options, options.work)
    try:
        wanted = {name: case for name, case in CASES.items() if not options.names or name in options.names}
        guests = max((case.guests for case in wanted.values()), default=0)
        with contextlib.suppress(Failure):
            runner.boot(guests)
        for name, case in wanted.items():
            began = time.monotonic()
            try:
                report(name, began, None, runner.run(name, case))
            except KeyboardInterrupt:
                raise
            except Exception as failure:
                report(name, began, failure if isinstance(failure, Failure) else repr(failure))
    finally:
        runner.close()
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0 or passed == 0)


if __name__ == "__main__":
    main()
