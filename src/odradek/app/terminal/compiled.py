"""Compiled parts of this installation: all of them if a C compiler was available."""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES

from odradek import __file__ as package
from odradek import __version__

# Modules that run for each request, for each record, or in threads of their own, by folder. setup.py, which is not
# installed, compiles the same list.
PARTS = {
    "rooms": {
        "api": "conversation dispatch",
        "api/cluster": "follower_requests",
        "api/fetch": "delayed_fetch fetch fetch_params fetch_read fetch_response follower_fetch plain_fetch",
        "api/groups": "plain_commit",
        "api/produce": "large_produce plain_produce produce produce_acks produce_admission produce_in_slices"
        " produce_staging",
        "api/request": "admission call gate outcome sliced_response",
        "api/templates": "commit_template fetch_template produce_template template_cache",
        "app/logging": "request_log",
        "core/broker": "broker coordinators metadata_change_requests replicas",
        "core/disks": "flushes",
        "core/fetch": "fetch_sessions",
        "core/kernel": "promise purgatory timers",
        "core/partition": "alter_partition_manager follower_states in_sync_replicas ingress leadership_state leading"
        " local_replica lookups partition positions replica_selector staging",
        "core/replication": "follower follower_log replica_fetcher replica_fetcher_manager",
        "log/log": "arrival durability durability_state log streaming_append",
        "log/segment": "index segment segment_slices",
        "net/clients": "acceptor client_connection listener receiving_transport secure_connection secure_outbox",
        "net/loop": "active_connections broker_timer descriptors group_commit readers traffic",
        "net/shell": "completed_requests effect_executor outbox shell",
        "record": "record_batch",
        "wire": "budget connection request response template",
        "wire/schema": "varint",
    },
    "kernels": {"record/kernels": "compact compact_runs decode encode murmur runs"},
    "movers": {"net/native": "mover scheduler syncer"},
}


def are_compiled() -> dict[str, bool]:
    """Return for each part whether all of its modules are compiled."""
    return {
        part: all(has_compiled(f"{folder}/{name}") for folder, names in folders.items() for name in names.split())
        for part, folders in PARTS.items()
    }


def has_compiled(module: str) -> bool:
    """Return whether Python finds a compiled module there, which takes precedence over the source."""
    path = f"{os.path.dirname(package)}/{module}"  # noqa: PTH120  # pathlib would take longer than all of this.
    return any(os.path.exists(path + suffix) for suffix in EXTENSION_SUFFIXES)  # noqa: PTH110


def how_compiled() -> str:
    """Return `compiled`, `interpreted`, or the parts that are not compiled."""
    missing = [part for part, is_compiled in are_compiled().items() if not is_compiled]
    if len(missing) == len(PARTS):
        return "interpreted"
    return f"{' and '.join(missing)} not compiled" if missing else "compiled"


def version_line() -> str:
    """Return the version and the compiled parts."""
    return f"odradek {__version__} ({how_compiled()})"
