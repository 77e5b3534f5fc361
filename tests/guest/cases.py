"""The cases: what each does on this machine. Their scripts, for the guest, are in cases/NAME.sh."""

import base64
import functools
import http.server
import json
import re
import shutil
import subprocess
import tarfile
import threading
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable


def nothing(_setting):
    pass


def plain(setting):
    """One drive without metadata, served to everybody."""
    setting.format()
    setting.serve_image()


@dataclass
class Case:
    """One case. `before` starts the target, `after` checks what is left; `requests` answers the script's `host` beside those that all cases
    have (`Setting.request`)."""

    before: Callable = plain
    after: Callable = nothing
    variables: Callable = lambda setting: {}
    requests: dict = field(default_factory=dict)
    guests: int = 1
    # The script, where it is not the case's name.
    script: str = ""
    seconds: int = 120
    # The fewest PDUs that the capture must have, and whether digests must be among them.
    pdus: int = 20
    digests: bool = False
    # Whether the target must send nothing but TLS records; then they count in place of PDUs.
    encrypted: bool = False
    # Whether the guest's kernel may report failed commands and lost connections.
    errors: bool = False


def metadata(setting):
    setting.format(metadata="nvme")
    setting.serve_image()


def secret(byte):
    """A secret of 32 bytes in the NVMe representation, without a hash: DHHC-1:00:BASE64 of the secret and its CRC-32."""
    data = bytes(byte ^ place for place in range(32))
    return f"DHHC-1:00:{base64.b64encode(data + zlib.crc32(data).to_bytes(4, 'little')).decode()}:"


# The host NQNs of the guests.
GUESTS = [f"nqn.2014-08.org.nvmexpress:uuid:3d8fe6a4-7a1c-4b3e-9d0e-0f2f3a4b5c{place:02x}" for place in range(2)]
# Further ones, that guests take.
HOSTS = {name: f"nqn.2026-11.example.toroid:host:{name}" for name in ("one-way", "both-ways", "open", "stranger")}


def allow_list(setting):
    setting.format()
    setting.serve_image("--host", HOSTS["open"])


def authentication(setting):
    setting.format()
    for name, byte in (("host", 0x11), ("controller", 0x77)):
        path = setting.folder / f"{name}.secret"
        path.write_text(secret(byte) + "\n")
        path.chmod(0o600)
    setting.serve_config(f"""
[[subsystem]]
nqn = "{setting.nqn}"

[[subsystem.namespace]]
nsid = 1
image = "drive.img"

[[subsystem.host]]
nqn = "{HOSTS['one-way']}"
secret_file = "host.secret"

[[subsystem.host]]
nqn = "{HOSTS['both-ways']}"
secret_file = "host.secret"
controller_secret_file = "controller.secret"
""")


def secrets(_setting):
    return {"SECRET": secret(0x11), "CONTROLLER_SECRET": secret(0x77), "WRONG_SECRET": secret(0x22),
            "ONE_WAY": HOSTS["one-way"], "BOTH_WAYS": HOSTS["both-ways"], "STRANGER": HOSTS["stranger"]}


# Hosts with a TLS key.
TLS_HOSTS = {name: f"nqn.2026-11.example.toroid:host:tls-{name}" for name in ("own", "wrong", "wrong-0")}


def tls(setting):
    setting.format()
    for name in (*TLS_HOSTS, "other"):
        setting.cli("keys", "tls-key", "--out", f"{name}.psk")
    hosts = "".join(f"""
[[subsystem.host]]
nqn = "{host}"
tls_key_file = "{name}.psk"
""" for name, host in TLS_HOSTS.items())
    setting.serve_config(f"""tls = "required"

[[subsystem]]
nqn = "{setting.nqn}"

[[subsystem.namespace]]
nsid = 1
image = "drive.img"
{hosts}""")


def tls_keys(setting):
    def key(name):
        return (setting.folder / f"{name}.psk").read_text().strip()
    return {"OWN_HOST": TLS_HOSTS["own"], "OWN_KEY": key("own"), "WRONG_HOST": TLS_HOSTS["wrong"], "WRONG_HOST_0": TLS_HOSTS["wrong-0"],
            "WRONG_KEY": key("other")}


def refusals(setting, count):
    """An answer to `host refusals COUNT`: whether the target has refused that many handshakes, so that they have taken place."""
    log = (setting.logs / f"{setting.name}.serve.log").read_text(errors="replace")
    return int(log.count("no secure channel") < int(count)), ""


PARAMS, X, Y = "message4", 3, -2
PROGRAM = Path(__file__).resolve().parents[2] / "crates" / "isa" / "examples" / "multiply.tasm"


def upload(setting, key, host):
    """Keys, program and x of a key id go to the drive by the client, over the network; y is packed into blocks, for the guest. The values
    that the script needs for this key id."""
    client = ["--host-nqn", host]
    folder, secret_key = f"keys{key}", f"keys{key}/client.key"
    (setting.folder / f"{key}.tasm").write_text(PROGRAM.read_text().replace(".key 0", f".key {key}"))
    setting.cli("keys", "generate", "--unencrypted", "--params", PARAMS, "--out", folder)
    setting.cli("encrypt", X, "--key", secret_key, "--out", f"x{key}.ct")
    setting.cli("encrypt", Y, "--key", secret_key, "--out", f"y{key}.ct")
    setting.cli("put", setting.url, f"{folder}/bootstrapping.key", f"{folder}/key-switching.key", f"{key}.tasm", "--key-id", key, *client)
    setting.cli("put", setting.url, f"x{key}.ct", "--as", f"cor:{key}:1", *client)
    place, = json.loads(setting.cli("reserve", setting.url, f"cow:{key}:2", "--json", *client))["objects"]
    setting.cli("raw", "pack", f"y{key}.ct", f"cow:{key}:2", "--out-data", "y.data", "--out-metadata", "y.metadata",
                "--extended", "y.extended", "--force")
    values = {f"{name.upper()}_{key}": place[name] for name in ("lba", "blocks", "metadata_lba")}
    for name in ("data", "metadata", "extended"):
        values[f"Y_{name.upper()}_{key}"] = base64.b64encode((setting.folder / f"y.{name}").read_bytes()).decode()
    return values


def compute(setting, *serve, **options):
    setting.format(size="512MiB", swap="64MiB", **options)
    setting.serve_image(*serve)
    setting.values = upload(setting, 0, GUESTS[0])


def compute_extended(setting):
    compute(setting, metadata="nvme")


def computational(setting):
    """A drive that also shows namespaces of programs and memory; the program in binary form is for the guest to load."""
    compute(setting, "--experimental-computational-programs")
    setting.cli("asm", "0.tasm", "--params", PARAMS, "--out", "program.tscp")
    setting.values["PROGRAM"] = base64.b64encode((setting.folder / "program.tscp").read_bytes()).decode()


NUMBERS = [row * 7 % 16 for row in range(40)]
BOUND = 9
EXCESS = f""".reg x = cor:0
.tv excess unsigned = x > {BOUND} ? x - {BOUND} : 0

    bootstrap excess, x
    return x
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def offer_program(setting):
    """Offers the guest the program under test with what it links to, as an archive, and gives the port."""
    offered, folder = setting.folder / "offered", setting.folder / "toroid"
    offered.mkdir()
    folder.mkdir()
    subprocess.run(["strip", "-o", folder / "toroid", setting.toroid], check=True)
    linked = subprocess.run(["ldd", setting.toroid], capture_output=True, text=True, check=True).stdout
    for path in map(Path, re.findall(r"/\S+", linked)):
        shutil.copy(path, folder / ("loader" if path.name.startswith("ld-linux") else path.name))
    with tarfile.open(offered / "toroid.tar", "w") as archive:
        archive.add(folder, "toroid")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=offered))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def mapped(setting):
    """A drive that runs programs on columns, with a column."""
    setting.format(size="512MiB", swap="64MiB")
    setting.serve_image("--experimental-computational-programs")
    client = ["--host-nqn", GUESTS[0]]
    setting.cli("keys", "generate", "--unencrypted", "--params", PARAMS, "--out", "keys")
    setting.cli("put", setting.url, "keys/bootstrapping.key", "keys/key-switching.key", *client)
    (setting.folder / "numbers.txt").write_text("".join(f"{number}\n" for number in NUMBERS))
    setting.cli("column", "put", setting.url, "readings", "numbers.txt", "--bits", 4, "--unsigned", *client)
    setting.values = {"ARCHIVE": offer_program(setting), "EXCESS": base64.b64encode(EXCESS.encode()).decode()}


def excess(setting):
    """Whether the column that the guest has had computed decrypts to the right numbers."""
    said = setting.cli("column", "get", setting.url, "result", "--host-nqn", GUESTS[0])
    expected = [max(number - BOUND, 0) for number in NUMBERS]
    return (0 if [int(number) for number in said.split()] == expected else 1), said


def tenants(setting):
    """A drive whose two hosts have a key id each."""
    setting.format(size="512MiB", swap="64MiB")
    hosts = "".join(f"""
[[subsystem.host]]
nqn = "{host}"
keys = [{key}]
""" for key, host in enumerate(GUESTS))
    setting.serve_config(f"""
[[subsystem]]
nqn = "{setting.nqn}"

[[subsystem.namespace]]
nsid = 1
image = "drive.img"
{hosts}""")
    setting.values = {name: value for key, host in enumerate(GUESTS) for name, value in upload(setting, key, host).items()}


def bootstraps(setting, seconds):
    """Has the drive run its program, over and over."""
    setting.busy = threading.Event()
    setting.runs = []
    until = time.monotonic() + float(seconds)

    def work():
        while not setting.busy.is_set() and time.monotonic() < until:
            try:
                setting.cli("run", setting.url, "cow:0:2", "--write", "y0.ct", "--out", "again.ct", "--force", "--host-nqn", GUESTS[1])
                setting.runs.append(None)
            except Exception as failure:
                setting.runs.append(failure)
                return
    setting.worker = threading.Thread(target=work, daemon=True)
    setting.worker.start()
    return 0, ""


def no_more_bootstraps(setting):
    setting.busy.set()
    setting.worker.join(60)
    failures = [str(run) for run in setting.runs if run]
    return (0 if setting.runs and not failures else 1), f"{len(setting.runs)} programs run; {failures}\n"


def product(setting, key, *parts):
    """Whether what the guest has read, in base64, decrypts to the product: data and metadata, or extended blocks."""
    names = [f"product{key}.{place}" for place in range(len(parts))]
    for name, text in zip(names, parts):
        (setting.folder / name).write_bytes(base64.b64decode(text))
    setting.cli("raw", "unpack", *(names if len(parts) == 2 else ["--extended", *names]), "--out", f"product{key}.ct", "--force")
    said = setting.cli("decrypt", f"product{key}.ct", "--key", f"keys{key}/client.key")
    return (0 if re.match(rf"{X * Y}\b", said) else 1), f"{X} * {Y} = {said}"


def masked(setting):
    """Three namespaces, one for everybody and two for a host each."""
    for name in ("all", "first", "second"):
        setting.format(f"{name}.img")
    setting.serve_config(f"""
[[subsystem]]
nqn = "{setting.nqn}"

[[subsystem.namespace]]
nsid = 1
image = "all.img"

[[subsystem.namespace]]
nsid = 2
image = "first.img"
hosts = ["{HOSTS['one-way']}"]

[[subsystem.namespace]]
nsid = 7
image = "second.img"
hosts = ["{HOSTS['both-ways']}"]

[[subsystem.host]]
nqn = "{HOSTS['one-way']}"

[[subsystem.host]]
nqn = "{HOSTS['both-ways']}"
""")


def meeting(count):
    """An answer to `host meet`: when all guests have asked for it."""
    barrier = threading.Barrier(count)

    def meet(_setting):
        barrier.wait(60)
        return 0, ""
    return meet


CASES = {
    "connect": Case(),
    "admin": Case(),
    "blocks": Case(digests=True),
    "commands": Case(digests=True),
    "filesystem": Case(digests=True),
    "fio": Case(digests=True, pdus=1500, seconds=180),
    "transfers": Case(digests=True),
    "metadata": Case(before=metadata, digests=True),
    "reset": Case(digests=True),
    "stress": Case(),
    "two-hosts": Case(guests=2, requests={"meet": meeting(2)}, digests=True),
    "kill": Case(digests=True, errors=True),
    "stall": Case(errors=True),
    "keep-alive": Case(),
    "allow-list": Case(before=allow_list, variables=lambda _: {"ALLOWED": HOSTS["open"], "STRANGER": HOSTS["stranger"]}),
    "authentication": Case(before=authentication, variables=secrets),
    "tls": Case(before=tls, variables=tls_keys, requests={"refusals": refusals}, encrypted=True, errors=True, seconds=300),
    "masking": Case(before=masked, variables=lambda _: {"FIRST": HOSTS["one-way"], "SECOND": HOSTS["both-ways"]}),
    "compute": Case(before=compute, variables=lambda setting: setting.values, requests={"product": product}),
    "compute-extended": Case(before=compute_extended, variables=lambda setting: setting.values,
                             requests={"product": product}),
    "computational": Case(before=computational, variables=lambda setting: setting.values,
                          requests={"product": product}, errors=True),
    "map": Case(before=mapped, variables=lambda setting: setting.values, requests={"excess": excess}, seconds=300),
    "busy": Case(script="keep-alive", before=compute, requests={"burn": bootstraps, "burnt": no_more_bootstraps}),
    "tenants": Case(script="compute", before=tenants, variables=lambda setting: setting.values,
                    requests={"product": product, "meet": meeting(2)}, guests=2, errors=True),
}
