"""A client whose life is a generator: it yields an operation to wait for, and is sent the result.

A yielded operation is a function that starts the wait, and receives a callback for the result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from odradek.base.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sim.simclients import RETRY_US, SimClient

Result = TypeVar("Result")

Then = Callable[[Any], None]
Wait = Callable[[Then], object]
Steps = Generator[Wait, Any, Result]

# Retriable errors, and errors of a producer that was fenced by another one.
RETRIABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}


class TransactionFailed(Exception):
    """Raised when the current transaction cannot be committed."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code


class SimSteps(SimClient):
    """A client that is done when its `live` returns."""

    _steps: Steps[None] | None = None
    _is_ended = False

    @property
    def is_done(self) -> bool:
        return self._is_ended

    def live(self) -> Steps[None]:
        """Run the client from its beginning to its end."""
        raise NotImplementedError

    def begin(self) -> None:
        self._steps = self.live()
        self.node.soon(lambda: self._continue(None))

    def pump(self) -> None:
        """Do nothing: the generator itself notices that the client drains."""

    def end(self) -> None:
        """Mark the client as done; it receives no more responses."""
        self._is_ended = True
        self.link.leave()

    def _continue(self, result: object) -> None:
        assert self._steps is not None, "it has begun"
        try:
            wait = self._steps.send(result)
        except StopIteration:
            self.end()
            return
        wait(self._soon)

    def _soon(self, result: object) -> None:
        """Continue in another turn: a link may call back at once, while the generator is still running."""
        self.node.soon(lambda: self._continue(result))

    # What can be waited for.

    def request(self, message: object, version: int, answer: type) -> Wait:
        """Send the request; the result is its response, or None if there will be none."""
        return lambda then: self.link.send_request(message, version, answer, then)

    def request_all(self, messages: Sequence[object], version: int, answer: type) -> Wait:
        """Pipeline some requests; the result is a list with the result of `request` for each."""

        def begin(then: Then) -> None:
            answers: dict[int, Any] = {}

            def answered(place: int, response: object) -> None:
                answers[place] = response
                if len(answers) == len(messages):
                    then([answers[place] for place in range(len(messages))])

            for place, message in enumerate(messages):
                self.link.send_request(message, version, answer, partial(answered, place))

        return begin

    def pause(self, range_us: tuple[int, int]) -> Wait:
        return lambda then: self.node.after(self.random.randrange(*range_us), lambda: then(None))

    def request_with_retries(
        self, message: object, version: int, answer: type, code_of: Callable[[Any], int], *, patience: float = 1.0
    ) -> Steps[tuple[Any, ErrorCode]]:
        """Retry the request on transient errors; return the response and its error.

        With a `patience` below 1 the client may give up after a lost response, with REQUEST_TIMED_OUT.
        """
        while True:
            response = yield self.request(message, version, answer)
            code = None if response is None else ErrorCode(code_of(response))
            if code is not None and code not in RETRIABLE:
                return response, code
            if code is None and self.random.random() >= patience:
                return None, ErrorCode.REQUEST_TIMED_OUT
            self.add_event("again", f"{type(message).__name__} {'no answer' if code is None else code.name}")
            yield self.pause(RETRY_US)

    def find_coordinator(self, key: str, key_type: int) -> Steps[None]:
        """Look up the coordinator; the first lookup creates its internal topic."""
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        _, code = yield from self.request_with_retries(
            request, 2, FindCoordinatorResponse, lambda response: response.error_code
        )
        assert code is ErrorCode.NONE, f"{self.name} has no coordinator: {code.name}"

    def find_all(self, topics: list[Any]) -> Steps[None]:
        """Retry the lookup until all topics exist."""
        while not (yield lambda then: self.find_topics(topics, then)):
            yield self.pause(RETRY_US)
