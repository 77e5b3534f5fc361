"""Keys and drives that tests share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import toroid
from toroid import _core

# Clusters of Ray that tests start admit this process and its children. Ray reads this when it is imported.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
# A cluster that runs beside the tests, or one that ended and left its address in Ray's folder, is not theirs.
os.environ["RAY_ADDRESS"] = "local"


@pytest.fixture(scope="session", params=["tiny", "tiny-wopbs"])
def key(request: pytest.FixtureRequest) -> _core.ClientKey:
    return _core.ClientKey.generate(request.param)


@pytest.fixture
def drive() -> Iterator[_core.Drive]:
    drive = _core.Drive.temporary()
    yield drive
    drive.close()


@pytest.fixture(scope="module")
def client() -> toroid.Client:
    return toroid.Client.generate("tiny-wopbs")


@pytest.fixture(scope="module")
def keys(client: toroid.Client) -> Any:
    return client.public_keys()
