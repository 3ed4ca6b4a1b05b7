"""Plain OffsetCommit requests, the most frequent kind: a template match except for the offsets.

The templates are in api/templates/commit_template.py. Reading, handling and answering such a request costs a third as
much as in api/groups/offset_commit.py. A request that is not plain, or would get an error, is left to offset_commit.py
before anything is done: that module has all the rules.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from odradek.api.groups.offset_commit import admit, committer_of, may_commit, response
from odradek.api.groups.offsets_to_commit import offsets_of
from odradek.api.request.call import Peer
from odradek.api.request.known_partitions import Codes
from odradek.api.request.outcome import NO_BODY, Encoded
from odradek.api.request.sliced_response import whole
from odradek.api.templates.commit_template import CommitTemplate, numbers_of
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import KIB
from odradek.core.broker.broker import Broker
from odradek.core.groups.group_offset_commit import NO_RETENTION
from odradek.core.groups.repeated_commit import RepeatedCommit
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek.wire.request import Request

# A consumer commits all of its partitions repeatedly. Requests that are handled in slices get no template.
PARTITIONS_MAX = SLICE_ELEMENTS
BODY_BYTES_MAX = 8 * KIB


def answer(broker: Broker, peer: Peer, request: Request, now: Moment) -> Encoded | ParkedRequest[Encoded]:
    """Commit and answer a plain request; return None if the request is not plain."""
    found = peer.commit_templates.match_request(request)
    if found is None:
        return None
    template, offsets = found
    try:
        shard = template.shard(broker)
        if shard is None:
            return None
        written = template.repeated.commit(shard, offsets, now)
    except Refused:
        return None
    request.body = NO_BODY
    return written.then(lambda failure: template.answer(request, failure), now, broker.groups.write_timeout_ms)


def learn(broker: Broker, peer: Peer, request: Request, received: memoryview, body: OffsetCommitRequest) -> None:
    """Make a template of a request read from `received`, so that the next one like it may be plain."""
    if len(received) > BODY_BYTES_MAX or body.retention_time_ms != NO_RETENTION:
        return
    rights = peer.admission.rights
    if not may_commit(rights, body.group_id):
        return
    known, kind = peer.commit_templates, (body.group_id, len(received))
    if known.has_given_up(kind) or not known.note(kind) or not known.make_room():
        return
    version = request.api_version
    partitions = whole(admit(broker.view, rights, body, version))
    count = len(partitions.known)
    if not 0 < count <= PARTITIONS_MAX or count != sum(len(topic.partitions) for topic in body.topics):
        return
    offsets = list(offsets_of(partitions))
    codes = whole(partitions.codes([ErrorCode.NONE] * count))
    length_max = broker.configs.int("offset.metadata.max.bytes")
    if any(offset.has_more_than(length_max) for offset in offsets):
        return
    with suppress(Refused):  # Raised if this broker does not coordinate the group.
        shard = broker.groups.shard_of(body.group_id, may_be_empty=True)
        repeated = RepeatedCommit(shard, committer_of(body, version), offsets)
        template = CommitTemplate(version, repeated, partial(_respond, codes), broker)
        if not known.learn(numbers_of(version, body), received.tobytes(), template, count):
            known.give_up(kind)


def _respond(codes: Codes, code: ErrorCode) -> OffsetCommitResponse:
    return whole(
        response({topic: [(index, code) for index, _ in partition_codes] for topic, partition_codes in codes.items()})
    )
