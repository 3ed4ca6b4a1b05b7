"""Values of inter.broker.protocol.version: Kafka's MetadataVersion as far as ZooKeeper is supported.

A release has one value for each change of the inter-broker protocol before it; 2.8 means the last one, 2.8-IV1.
"""

from __future__ import annotations

from typing import NamedTuple

# The number of values of each release.
_RELEASES = {"0.11.0": 3, "1.0": 1, "1.1": 1}
_RELEASES |= {"2.0": 2, "2.1": 3, "2.2": 2, "2.3": 2, "2.4": 2, "2.5": 1, "2.6": 1, "2.7": 3, "2.8": 2}
_RELEASES |= {"3.0": 2, "3.1": 1, "3.2": 1, "3.3": 4, "3.4": 1, "3.5": 3, "3.6": 3, "3.7": 5, "3.8": 1, "3.9": 1}
_NAMES = [f"{release}-IV{number}" for release, count in _RELEASES.items() for number in range(count)]


class MetadataVersion(NamedTuple):
    """One metadata version; versions compare by their order."""

    rank: int
    name: str


METADATA_VERSIONS = tuple(MetadataVersion(rank, name) for rank, name in enumerate(_NAMES))
OLDEST, NEWEST = METADATA_VERSIONS[0], METADATA_VERSIONS[-1]

_NAMED = {version.name: version for version in METADATA_VERSIONS}
# The last of a release wins.
_NAMED |= {version.name.partition("-")[0]: version for version in METADATA_VERSIONS}
assert len(_NAMED) == len(METADATA_VERSIONS) + len(_RELEASES), "each version and each release has a name of its own"


def metadata_version(text: str) -> MetadataVersion | None:
    """Return the version that a text names, parsed as in Kafka; None if it names none.

    Any suffix of the release numbers is ignored: 3.9.1 is 3.9.  Before 1.0 a release had three numbers.
    """
    release = text.split(".")[: 3 if text.startswith("0.") else 2]
    return _NAMED.get(".".join(release))
