"""A question to a table on the drives of a Ray cluster, without any key: its answer is encrypted, in the file of the job.

It knows the drives from TOROID_DRIVES, names separated by spaces, or asks every node that has the resource `drive`. Change `question` to ask another one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ray
import toroid
from toroid import col
from toroid.ray import Cluster, ShardedTable

NQN = "nqn.2024-01.example.toroid:drive"


def question(table: ShardedTable) -> toroid.Query:
    """How many earn more than 30, and how much together, by department."""
    return table.where(col("pay") > 30).group_by("dept").agg(n=toroid.count(), total=col("pay").sum())


def drives() -> dict[str, dict[str, object]]:
    """The locations of the drives, with options of Ray that place each drive's actor."""
    if names := os.environ.get("TOROID_DRIVES"):
        return {f"nvme+tcp://{name if ':' in name else f'{name}:4420'}/{NQN}": {} for name in names.split()}
    nodes = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("drive")]
    # Beside the drive, in the same pod.
    return {f"nvme+tcp://{address}:4420/{NQN}": {"resources": {"drive": 0.001, f"node:{address}": 0.001}} for address in sorted(nodes)}


def main(name: str, results: str) -> None:
    """Asks, and keeps the answer."""
    ray.init("auto", log_to_driver=False)
    placement = drives()
    if not placement:
        raise SystemExit("there is no node with the resource drive, and TOROID_DRIVES names none")
    secret = os.environ.get("TOROID_HOST_SECRET")
    options = {"host_nqn": os.environ["TOROID_HOST_NQN"], "host_secret": secret} if secret else {}
    job = Path(results) / f"{name}.job"
    with Cluster(list(placement), placement=placement, **options) as cluster:
        query = question(cluster.table(name).options(job=job))
        print(query.cost(), flush=True)
        query.run(progress=lambda stage, done, total: print(f"{stage}: {done} of {total}", flush=True))
    print(f"the encrypted answer is in {job}")


if __name__ == "__main__":
    main(*sys.argv[1:])
