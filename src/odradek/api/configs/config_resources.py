"""The types of resources that have a configuration, as the APIs of configurations number them."""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
