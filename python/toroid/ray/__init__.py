"""Encrypted tables over the drives of a Ray cluster: `pip install 'toroid[ray]'`.

One actor a drive owns its session. Rows, keys and programs go to the drives; results of ranges of rows come back, and the client alone decrypts them and
adds them up. Nothing here takes a client, so that its key cannot enter an object of Ray.
"""

try:
    import ray as _ray  # noqa: F401
except ImportError as error:
    raise ImportError("toroid.ray needs Ray: pip install 'toroid[ray]'") from error

from toroid.ray._cluster import Cluster
from toroid.ray._places import MissingRows
from toroid.ray._resume import aresume, resume
from toroid.ray._table import ShardedTable

__all__ = ["Cluster", "MissingRows", "ShardedTable", "aresume", "resume"]
