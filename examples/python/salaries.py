"""Salaries by department, on a drive that cannot read them: `python examples/python/salaries.py [LOCATION [SET]]`.

LOCATION is a path or nvme+tcp://HOST:PORT/NQN; without one the drive is in this process. SET is a parameter set; "tiny-wopbs" is quick and protects nothing.
"""

import sys

import numpy as np
import toroid
from toroid import col


@toroid.table(out=toroid.u8)  # called with every number, so that any Python works
def bonus(rating: toroid.u4):
    return {0: 0, 1: 5, 2: 20}.get(rating // 5, 99)


def main(location: str | None = None, params: str = "message16") -> None:
    client = toroid.Client.generate(params)  # the secret key stays in this process, so that each run is another client
    staff = {"dept": np.array([0, 1, 2, 1, 0]), "pay": np.array([31, 52, 47, 60, 29]), "rating": np.array([3, 12, 7, 15, 9])}
    with toroid.open(location) as drive:
        drive.install(client.public_keys(), progress=True, replace=True)
        table = drive.upload("staff", client.encrypt(staff, {"dept": (0, 3), "pay": "u8", "rating": (0, 15)}), replace=True)
        query = table.where(col("pay") > 30).group_by("dept").agg(n=toroid.count(), pay=col("pay").sum(), bonus=bonus(col("rating")).sum())
        print(query.cost())
        for name, numbers in client.decrypt(query.run(progress=True)).items():
            print(name, *numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
