"""What a clean environment must be able to do: run by python/test in one of each Python."""

import numpy as np
import toroid


@toroid.program
def larger(x: toroid.u4, y: toroid.u4):
    return toroid.maximum(x, y)


client = toroid.Client.generate("tiny")
with toroid.open() as drive:
    drive.install(client.public_keys())
    x, y = np.array([3, 9, 15], np.uint8), np.array([4, 8, 0], np.uint8)
    table = drive.upload("numbers", client.encrypt({"x": x, "y": y}, {"x": (0, 15), "y": (0, 15)}))
    found = client.decrypt(larger.run(table, log2_failure=-64))
assert found.tolist() == [4, 9, 15], found
