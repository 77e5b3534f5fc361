"""Keys and drives that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from toroid import _core


@pytest.fixture(scope="session", params=["tiny", "tiny-wopbs"])
def key(request: pytest.FixtureRequest) -> _core.ClientKey:
    return _core.ClientKey.generate(request.param)


@pytest.fixture
def drive() -> Iterator[_core.Drive]:
    drive = _core.Drive.temporary()
    yield drive
    drive.close()
