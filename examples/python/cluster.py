"""Salaries by department, over a cluster of drives: `python examples/python/cluster.py [SET [LOCATION...]]`.

Without locations it starts a Ray of this machine with two drives, which are images in a temporary folder. SET is a parameter set; "tiny-wopbs" is quick and
protects nothing. Needs `pip install 'toroid[ray]'`.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import toroid
from toroid import col
from toroid.ray import Cluster


@toroid.table(out=toroid.u8)  # called with every number, so that any Python works
def bonus(rating: toroid.u4):
    return {0: 0, 1: 5, 2: 20}.get(rating // 5, 99)


def main(params: str = "message16", *locations: str) -> None:
    client = toroid.Client.generate(params)  # the secret key stays in this process
    staff = {"dept": np.array([0, 1, 2, 1, 0]), "pay": np.array([31, 52, 47, 60, 29]), "rating": np.array([3, 12, 7, 15, 9])}
    with tempfile.TemporaryDirectory() as folder:
        images = [] if locations else [str(Path(folder) / f"{name}.img") for name in "ab"]
        for image in images:
            toroid.open(image, create=True).close()
        with Cluster(locations or images) as cluster:
            cluster.install(client.public_keys(progress=True))
            table = cluster.upload("staff", client.encrypt(staff, {"dept": (0, 3), "pay": "u8", "rating": (0, 15)}), replicas=2, replace=True)
            query = table.where(col("pay") > 30).group_by("dept").agg(n=toroid.count(), pay=col("pay").sum(), bonus=bonus(col("rating")).sum())
            print(query.cost())
            for name, numbers in client.decrypt(query.run(progress=True)).items():
                print(name, *numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
