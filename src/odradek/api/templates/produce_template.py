"""Templates of Produce requests, per connection and shared by all connections under one admission.

    │ transactional id, acks, timeout, topic, partition │ records │ partition │ records │ tags, none │

A producer's requests to the same partitions differ only in their records. A request that matches an earlier one except
for the records need not be parsed again. Its answer is the earlier answer with other numbers.

The requests of a reconnecting producer, or of one of a thousand identical producers, need not be parsed even once: the
connection also searches the templates of all connections with the same rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.api.templates.template_cache import BODY_BYTES_MAX, SHAPES_MAX, TemplatePartition, Templates
from odradek.base.errors import ErrorCode
from odradek.base.limits import PRODUCE_TEMPLATES_MAX
from odradek.base.units import TopicPartition
from odradek.base.uuids import Uuid
from odradek.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.wire.request import Request
from odradek.wire.template import AnswerTemplate, RecordsTemplate

_RECORDS = ("topic_data.partition_data.records",)
_ANSWERED = "responses.partition_responses."
_NUMBERS = (_ANSWERED + "base_offset", _ANSWERED + "log_append_time_ms", _ANSWERED + "log_start_offset")
_ALIKE_MAX = 8  # Templates with the same beginning: the same first partition and the same number of partitions.


class ProduceTemplate:
    """A request template: the partitions of one producer, without the records."""

    def __init__(
        self, version: int, body: ProduceRequest, names: Sequence[TopicPartition], known: RecordsTemplate
    ) -> None:
        self.version = version
        self.transactional_id = body.transactional_id
        self.acks = body.acks
        self.timeout_ms = body.timeout_ms
        self.known = known
        ids = [Uuid(topic.topic_id) for topic in body.topic_data for _ in topic.partition_data]
        self.partitions = [TemplatePartition(name, topic_id) for name, topic_id in zip(names, ids, strict=True)]
        self._topics = [
            (topic.name, topic.topic_id, [part.index for part in topic.partition_data]) for topic in body.topic_data
        ]
        self.answer = AnswerTemplate(self.response([(0, 0, 0)] * len(names)), version, _NUMBERS)

    def response(self, rows: Iterable[tuple[int, ...]]) -> ProduceResponse:
        """Return the answer for rows of base offset, log append time and log start offset."""
        left = iter(rows)
        responses = []
        for name, topic_id, indexes in self._topics:
            parts = []
            for index in indexes:
                base_offset, time, log_start_offset = next(left)
                parts.append(
                    PartitionProduceResponse(
                        index=index,
                        error_code=ErrorCode.NONE,
                        base_offset=base_offset,
                        log_append_time_ms=time,
                        log_start_offset=log_start_offset,
                    )
                )
            responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=parts))
        return ProduceResponse(responses=responses)


class ProduceTemplates(Templates[ProduceTemplate]):
    """Templates by their first bytes; the shapes are the lengths of these, and a producer has few."""

    def __init__(self, size_max: int = PRODUCE_TEMPLATES_MAX, shapes_max: int = SHAPES_MAX) -> None:
        super().__init__(size_max, shapes_max)
        self._known: dict[bytes, list[ProduceTemplate]] = {}
        self._sizes: list[int] = []

    def match_request(
        self, request: Request, others: ProduceTemplates
    ) -> tuple[ProduceTemplate, list[memoryview]] | None:
        """Return the matching template, from here or `others`, and the records; None if there is none."""
        for template in self.find_by_beginning(request):
            records = template.known.records(request.body)
            if records is not None:
                return template, records
        for template in others.find_by_beginning(request):
            records = template.known.records(request.body)
            if records is not None:
                self._keep(template)
                return template, records
        return None

    def find_by_beginning(self, request: Request) -> list[ProduceTemplate]:
        """Return the templates that start like the request."""
        body = request.body
        for size in self._sizes:
            found = self._known.get(body[:size].tobytes())
            if found is not None and found[0].version == request.api_version:
                return found
        return []

    def learn(
        self,
        version: int,
        body: ProduceRequest,
        names: Sequence[TopicPartition],
        received: memoryview,
        others: ProduceTemplates,
    ) -> None:
        """Make a template, here and in `others`, of a request that was read from `received`."""
        kind = tuple(names)
        if self.has_given_up(kind) or (len(names) > 1 and not self.note(kind)) or not self.make_room():
            return
        known = RecordsTemplate(body, version, _RECORDS)
        size = len(known.beginning)
        is_short = size + sum(map(len, known.rest)) <= BODY_BYTES_MAX
        if is_short and received[:size] == known.beginning and known.records(received) is not None:
            template = ProduceTemplate(version, body, names, known)
            if not self._keep(template):
                self.give_up(kind)
            others._keep(template)
        else:  # Our encoding of the request has other bytes.
            self.give_up(kind)

    def _keep(self, template: ProduceTemplate) -> bool:
        """Keep the template; return False if too many start with the same bytes."""
        if not self.make_room():
            return True
        beginning = template.known.beginning
        if len(beginning) not in self._sizes:
            if len(self._sizes) >= self._shapes_max and not self._forget():
                return True
            self._sizes.append(len(beginning))
        alike = self._known.setdefault(beginning, [])
        if alike and alike[0].version != template.version:  # Another client wrote that request.
            self._size -= sum(len(other.partitions) for other in alike)
            alike.clear()
        for number, other in enumerate(alike):
            if other.known.rest == template.known.rest:
                alike[number] = template
                return True
        if len(alike) >= _ALIKE_MAX:
            return False
        alike.append(template)
        self._size += len(template.partitions)
        return True

    def _clear(self) -> None:
        self._known.clear()
        self._sizes.clear()
