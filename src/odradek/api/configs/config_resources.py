"""Types of resources that have a configuration, with their numbers in the protocol."""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
