"""The files of deploy/: their schemas, and that every command in them is one that `toroid` takes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toroid
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"

#: Fields of KubeRay's resources, of version ray.io/v1, and their types; a template is one of a pod.
HEAD = {"serviceType": str, "rayStartParams": dict, "template": dict}
GROUP = {"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, "rayStartParams": dict, "template": dict}
CLUSTER = {
    "rayVersion": str,
    "authOptions": dict,
    "enableInTreeAutoscaling": bool,
    "autoscalerOptions": dict,
    "headGroupSpec": dict,
    "workerGroupSpecs": list,
}
JOB = {"clusterSelector": dict, "entrypoint": str, "entrypointNumCpus": int, "submissionMode": str, "submitterPodTemplate": dict}

#: Beside the fields of these, a container or unit has those of a schema.
TOROID = re.compile(r"(?:^|[\s;&|]|/usr/local/bin/)(toroid drive [^;&|\n'\]]+)")


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def manifests() -> list[dict[str, Any]]:
    return [document for path in sorted(KUBERNETES.glob("*.yaml")) for document in documents(path)]


def only(kind: str) -> dict[str, Any]:
    (found,) = (document for document in manifests() if document["kind"] == kind)
    return found


def pods() -> dict[str, dict[str, Any]]:
    """The pods of the cluster and of the job, by their groups."""
    spec = only("RayCluster")["spec"]
    found = {"head": spec["headGroupSpec"]["template"], "submitter": only("RayJob")["spec"]["submitterPodTemplate"]}
    found.update((group["groupName"], group["template"]) for group in spec["workerGroupSpecs"])
    return found


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def check_fields(found: dict[str, Any], known: dict[str, type]) -> None:
    for name, value in found.items():
        assert name in known, name
        assert isinstance(value, known[name]), f"{name} is {value!r}"
        assert known[name] is not int or not isinstance(value, bool), name


def filled(value: Any) -> Any:
    """A value of a compose file with the defaults of its variables."""
    if isinstance(value, dict):
        return {name: filled(item) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value).replace("$$", "$") if isinstance(value, str) else value


def compose() -> dict[str, Any]:
    (found,) = documents(DEPLOY / "compose.yaml")
    return filled({name: value for name, value in found.items() if not name.startswith("x-")})


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command `toroid ...` in a file, with where it stands."""
    for place, pod in pods().items():
        for container in containers(pod):
            words = container.get("command", ["toroid"]) + container.get("args", [])
            if container["image"].startswith("toroid-drive"):
                yield f"{place}/{container['name']}", words
    for name, service in compose()["services"].items():
        if service["image"].startswith("toroid-drive"):
            yield name, service.get("entrypoint", ["toroid"]) + service["command"]
    unit = (DEPLOY / "systemd" / "toroid-drive@.service").read_text().replace("$$", "$")
    for line in re.findall(r"^ExecStart(?:Pre)?=(.+)$", unit, re.MULTILINE):
        yield "systemd", shlex.split(line)


def own_commands() -> list[Any]:
    found = []
    for place, words in commands():
        if words[0].endswith("toroid"):
            found.append(pytest.param(words[1:], id=place))
            continue
        # A script: `sh -ec SCRIPT`.
        script = words[-1]
        for number, command in enumerate(TOROID.findall(script)):
            found.append(pytest.param(shlex.split(command)[1:], id=f"{place}-{number}"))
        if "toroid" not in script.replace("/run/toroid", ""):
            assert place.endswith("/secret"), place
    return found


def program_toroid() -> str:
    program = os.environ.get("TOROID") or shutil.which("toroid")
    if program is None:
        pytest.skip("there is no command `toroid`; TOROID can name it")
    return str(Path(program).resolve())


def test_every_file_has_commands() -> None:
    places = [parameter.id for parameter in own_commands()]
    assert places == ["drives/format-0", "drives/drive", "format-0", "drive-a", "drive-b", "drive-c", "systemd-0", "systemd", "systemd"]


@pytest.mark.parametrize("words", own_commands())
def test_a_command_is_one_of_toroid(words: list[str], tmp_path: Path) -> None:
    if words[:2] == ["drive", "format"]:
        image = tmp_path / "drive.img"
        # An image is a sparse file.
        sizes = {"$TOROID_SIZE": "64GiB", "$TOROID_SWAP": "8GiB"}
        words = ["drive", "format", str(image), *(sizes.get(word, word) for word in words[3:])]
    else:
        assert words[:3] == ["drive", "serve", "--config"]
        config = DEPLOY / "systemd" / "example.toml" if "%i" in words[3] else KUBERNETES / "serve.toml"
        assert words[3] in ("/etc/toroid/%i.toml", "/etc/toroid/serve.toml")
        words = ["drive", "serve", "--config", str(config), *(word for word in words[4:] if word != "--check"), "--check"]
    ran = subprocess.run([program_toroid(), *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_question_is_answered_without_the_client(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'toroid[ray]'")
    from toroid.ray import Cluster

    secret = tmp_path / "host.dhchap"
    subprocess.run([program_toroid(), "keys", "host-secret", "--out", str(secret)], check=True, capture_output=True)
    servers, addresses = [], []
    try:
        for name in "ab":
            image, config = tmp_path / f"{name}.img", tmp_path / f"{name}.toml"
            toroid.open(image, create="64MiB").close()
            # What differs from a pod is where things are.
            text = (KUBERNETES / "serve.toml").read_text()
            places = {
                "0.0.0.0:4420": "127.0.0.1:0",
                "0.0.0.0:9464": "127.0.0.1:0",
                "/drive/drive.img": str(image),
                "/run/toroid/host.dhchap": str(secret),
            }
            for before, after in places.items():
                assert text.count(f'"{before}"') == 1
                text = text.replace(before, after)
            config.write_text(text)
            command = [program_toroid(), "--json", "drive", "serve", "--config", str(config), "--log-level", "error"]
            servers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            assert servers[-1].stdout is not None
            addresses.append(json.loads(servers[-1].stdout.readline())["listen"][0])
        started = ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
        client = toroid.Client.generate("tiny-wopbs")
        options: dict[str, Any] = {"host_nqn": "nqn.2024-01.example.toroid:ray", "host_secret": str(secret)}
        locations = [f"nvme+tcp://{address}/nqn.2024-01.example.toroid:drive" for address in addresses]
        for location in locations:
            toroid.open(location, new_store=True, **options).close()
        staff = {"dept": np.array([0, 1, 1, 0, 1]), "pay": np.array([31, 52, 47, 60, 29])}
        with Cluster(locations, **options) as cluster:
            cluster.install(client.public_keys())
            cluster.upload("staff", client.encrypt(staff, {"dept": (0, 1), "pay": (0, 63)}))
        own = {"TOROID_DRIVES": " ".join(addresses), "TOROID_HOST_NQN": options["host_nqn"], "TOROID_HOST_SECRET": str(secret)}
        environment = {**os.environ, **own, "RAY_ADDRESS": started.address_info["address"]}
        command = [sys.executable, str(KUBERNETES / "question.py"), "staff", str(tmp_path)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert f"the encrypted answer is in {tmp_path / 'staff.job'}" in ran.stdout
        # Everything is in the file of the job, for whoever has the key.
        answer = toroid.ray.resume(tmp_path / "staff.job", **options)
        assert client.decrypt(answer)["total"].tolist() == [91, 99]
    finally:
        ray.shutdown()
        for server in servers:
            server.kill()
            server.communicate()


def test_manifests_are_valid() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    own = {"RayCluster", "RayJob", "Kustomization"}
    for document in manifests():
        if document["kind"] not in own:
            validate(document, "1.34", strict=True)
    for name, pod in pods().items():
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **pod["metadata"]}, "spec": pod["spec"]}, "1.34", strict=True)


def test_the_cluster_and_the_job_have_fields_of_kuberay() -> None:
    cluster, job = only("RayCluster"), only("RayJob")
    assert cluster["apiVersion"] == job["apiVersion"] == "ray.io/v1"
    check_fields(cluster["spec"], CLUSTER)
    check_fields(cluster["spec"]["headGroupSpec"], HEAD)
    for group in cluster["spec"]["workerGroupSpecs"]:
        check_fields(group, GROUP)
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        # KubeRay takes texts only.
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    check_fields(job["spec"], JOB)
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    # KubeRay refuses these beside a cluster that runs already.
    assert not {"backoffLimit", "ttlSecondsAfterFinished", "shutdownAfterJobFinishes"} & set(job["spec"])
    drives, compute = cluster["spec"]["workerGroupSpecs"]
    assert (drives["groupName"], compute["groupName"], compute["minReplicas"], compute["replicas"]) == ("drives", "compute", 0, 0)
    # KubeRay takes the first container for Ray's.
    assert all(pod["spec"]["containers"][0]["image"].startswith("toroid-ray") for pod in pods().values())


def test_the_versions_are_those_of_the_package() -> None:
    extras = (ROOT / "pyproject.toml").read_text()
    (ray,) = re.findall(r'"ray==([\d.]+)"', extras)
    assert only("RayCluster")["spec"]["rayVersion"] == ray
    (version,) = re.findall(r'^version = "([\d.]+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    images = {container["image"] for pod in pods().values() for container in containers(pod)}
    images |= {service["image"] for service in compose()["services"].values()}
    assert images == {f"toroid-drive:{version}", f"toroid-ray:{version}"}


def test_names_in_manifests_lead_to_what_is_there() -> None:
    for pod in pods().values():
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", ())}
        mounted = {mount["name"] for container in containers(pod) for mount in container.get("volumeMounts", ())}
        assert mounted == volumes
    (kustomization,) = (document for document in manifests() if document["kind"] == "Kustomization")
    assert all((KUBERNETES / name).is_file() for name in kustomization["resources"])
    (generated,) = kustomization["configMapGenerator"]
    assert all((KUBERNETES / name).is_file() for name in generated["files"])
    assert "python /etc/toroid/question.py staff /results" == only("RayJob")["spec"]["entrypoint"]


def test_no_client_key_and_no_privilege_is_in_the_cluster() -> None:
    for name, pod in pods().items():
        secrets = [volume["secret"] for volume in pod["spec"].get("volumes", ()) if "secret" in volume]
        assert all([item["key"] for item in secret["items"]] == ["host.dhchap"] for secret in secrets), name
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
        for container in containers(pod):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert "memory" in container["resources"]["limits"], name
    services = compose()["services"]
    assert all(service["cap_drop"] == ["ALL"] for service in services.values())
    # What has no authentication is for this machine alone.
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", ()))
    assert "client.key" not in "".join(path.read_text() for path in DEPLOY.rglob("*") if path.is_file())


def test_the_compose_file_is_valid() -> None:
    specification = pytest.importorskip("compose_spec").PyCompose
    found = compose()
    specification.from_json(json.dumps(found)).validate()
    for kind in ("configs", "secrets"):
        for place in found[kind].values():
            path = DEPLOY / place["file"]
            assert path.is_file() or path.parent.name == "secrets", path


def test_the_unit_is_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    # It looks for the program where the unit has it.
    text = (DEPLOY / "systemd" / "toroid-drive@.service").read_text().replace("/usr/local/bin/toroid", shutil.which("true") or "/bin/true")
    unit = tmp_path / "toroid-drive@payroll.service"
    unit.write_text(text)
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kustomize_makes_the_manifests() -> None:
    ran = subprocess.run(["kubectl", "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=True)
    made = [document for document in yaml.safe_load_all(ran.stdout) if document]
    (config,) = (document for document in made if document["kind"] == "ConfigMap")
    assert config["data"]["serve.toml"] == (KUBERNETES / "serve.toml").read_text()
    named = {volume["configMap"]["name"] for pod in pods().values() for volume in pod["spec"].get("volumes", ()) if "configMap" in volume}
    assert named == {config["metadata"]["name"]}
    assert {document["metadata"].get("namespace", "toroid") for document in made} == {"toroid"}


def test_the_base_images_are_pinned() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    bases = re.findall(r"^ARG \w+=(\S+)$", text, re.MULTILINE)
    assert len(bases) == 3
    assert all(re.fullmatch(r"docker\.io/library/[a-z]+:\d+\.\d+[\w.-]*", base) for base in bases), bases
    assert all(name.startswith("${") for name in re.findall(r"^FROM (\S+)", text, re.MULTILINE))
