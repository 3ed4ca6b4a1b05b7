"""Requests of followers to their leaders, over separate connections: a fetch waits at the leader.

broker.fetchers.take_requests ──> a request on the channel to the leader ──> the response, processed in slices
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from odradek.api.cluster import follower_requests as follower_api
from odradek.api.cluster.follower_requests import FetchSettings
from odradek.api.fetch.list_offsets import EARLIEST, LATEST
from odradek.base.errors import ErrorCode, Refused, error_code
from odradek.base.units import TopicPartition
from odradek.core.broker.broker import Broker
from odradek.core.replication.replica_fetcher_manager import (
    LeaderEpochsRequest,
    LeaderOffsetsRequest,
    ReplicaFetch,
    ReplicaFetcher,
    Request,
)
from odradek.net.channels.broker_channels import BrokerChannels
from odradek.net.channels.channel_requests import SYSTEM_DEFAULT, RequestBuilder, SocketSettings
from odradek.net.cluster.controller_updates import Shell
from odradek.net.loop.slices import Slices
from odradek.tls.ssl_contexts import Contexts
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.list_offsets import ListOffsetsResponse
from odradek.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

RECEIVE_BUFFER = "replica.socket.receive.buffer.bytes"

T = TypeVar("T")


class FetcherConnections:
    """Follower connections of one broker, on the loop's thread; the core schedules the requests."""

    def __init__(self, shell: Shell, broker: Broker, listener: str, tls: Contexts | None) -> None:
        self._shell = shell
        self._broker = broker
        configs = broker.configs
        self._settings = FetchSettings(
            broker.id,
            -1,
            configs.int("replica.fetch.wait.max.ms"),
            configs.int("replica.fetch.min.bytes"),
            configs.int("replica.fetch.response.max.bytes"),
            configs.int("replica.fetch.max.bytes"),
        )
        self._slices = Slices(shell.loop, shell.settle)  # Records must not wait for other long work.
        self._listener = listener
        self._tls = tls
        self._sockets = SocketSettings(
            configs.int("replica.socket.timeout.ms"),
            # Kafka's default would disable the system's automatic sizing, which works better.
            configs.int(RECEIVE_BUFFER) if configs.is_set(RECEIVE_BUFFER) else SYSTEM_DEFAULT,
        )
        self._channels: dict[int, BrokerChannels] = {}  # By fetcher number.

    def send_due_requests(self) -> None:
        """Send the requests that are due."""
        for fetcher, request in self._broker.fetchers.take_requests():
            if isinstance(request, ReplicaFetch):
                self._fetch(fetcher, request)
            elif isinstance(request, LeaderEpochsRequest):
                self._request_epochs(fetcher, request)
            else:
                self._request_offsets(fetcher, request)

    def _fetch(self, fetcher: ReplicaFetcher, request: ReplicaFetch) -> None:
        version = follower_api.fetch_version(request, self._broker.protocol.fetch)
        settings = self._settings._replace(broker_epoch=self._broker.controlled.broker_epoch)
        message = follower_api.fetch_message(request, settings, version)

        def on_answered(response: FetchResponse) -> None:
            if response.error_code:
                self._failed(fetcher, request, error_code(response.error_code))
                return
            answers = follower_api.fetch_results(response, fetcher.topic_names, version)
            advanced = fetcher.fetched(request, response.session_id, answers, self._shell.now())
            self._process(fetcher, request, self._complete_waiting(advanced))

        self._send(fetcher, request, RequestBuilder.of(message, FetchResponse, version), on_answered)

    def _complete_waiting(self, advanced: Iterable[TopicPartition | None]) -> Iterator[None]:
        """Complete waiting requests of each partition whose high watermark has advanced."""
        for name in advanced:
            if name is not None:
                self._broker.purgatory.happened(name)
            yield

    def _request_epochs(self, fetcher: ReplicaFetcher, request: LeaderEpochsRequest) -> None:
        message = follower_api.epochs_message(request, self._broker.id)
        version = self._broker.protocol.offset_for_leader_epoch

        def on_answered(response: OffsetForLeaderEpochResponse) -> None:
            ends = follower_api.epoch_ends(response)
            self._process(fetcher, request, fetcher.epochs_ended(request, ends, self._shell.now()))

        self._send(fetcher, request, RequestBuilder.of(message, OffsetForLeaderEpochResponse, version), on_answered)

    def _request_offsets(self, fetcher: ReplicaFetcher, request: LeaderOffsetsRequest) -> None:
        """Request the leader's log end offsets, then the start offsets.

        Two requests are needed because a request may contain a partition only once.
        """
        version = self._broker.protocol.list_offsets

        def on_latest_offsets(response: ListOffsetsResponse) -> None:
            ends = {name: (error, end) for name, error, end in follower_api.offsets(response)}

            def on_answered(response: ListOffsetsResponse) -> None:
                both = follower_api.both_offsets(response, ends)
                self._process(fetcher, request, fetcher.offsets(request, both, self._shell.now()))

            send_list_offsets(EARLIEST, on_answered)

        def send_list_offsets(timestamp: int, then: Callable[[ListOffsetsResponse], None]) -> None:
            message = follower_api.offsets_message(request, self._broker.id, timestamp)
            self._send(fetcher, request, RequestBuilder.of(message, ListOffsetsResponse, version), then)

        send_list_offsets(LATEST, on_latest_offsets)

    def _send(
        self, fetcher: ReplicaFetcher, request: Request, builder: RequestBuilder[T], on_answered: Callable[[T], None]
    ) -> None:
        def on_response(response: T | Refused) -> None:
            if isinstance(response, Refused):
                self._failed(fetcher, request, response.code)
            else:
                on_answered(response)
            if not self._broker.fetchers.uses(fetcher.number):
                self._close_unused()
            self._shell.settle()

        self._channels_of(fetcher.number).send_request(fetcher.leader, builder, on_response)

    def _channels_of(self, number: int) -> BrokerChannels:
        known = self._channels.get(number)
        if known is None:
            shell, broker = self._shell, self._broker
            client_id = f"broker-{broker.id}-fetcher-{number}"
            listener, sockets = self._listener, self._sockets
            known = BrokerChannels(shell.loop, client_id, broker.view, listener, self._tls, sockets=sockets)
            self._channels[number] = known
        return known

    def _process(self, fetcher: ReplicaFetcher, request: Request, work: Iterator[None]) -> None:
        """Process a response in slices.

        A bug in the processing fails one fetch, which is repeated after a pause, and does not stop the fetcher.
        """

        def guarded() -> Iterator[None]:
            try:
                yield from work
            except Exception:
                self._failed(fetcher, request, ErrorCode.UNKNOWN_SERVER_ERROR)
                raise

        self._slices.add(guarded())

    def _failed(self, fetcher: ReplicaFetcher, request: Request, error: ErrorCode) -> None:
        fetcher.failed(request, error, self._shell.now())

    def close_stale(self) -> None:
        """Close channels to brokers that have left or moved; called when the view has changed."""
        self._close_unused()
        for channels in self._channels.values():
            channels.close_stale()

    def _close_unused(self) -> None:
        """Close channels of fetcher numbers that no longer exist after a change of num.replica.fetchers."""
        for number in [number for number in self._channels if not self._broker.fetchers.uses(number)]:
            self._channels.pop(number).close()

    def close(self) -> None:
        self._slices.drop()
        for channels in self._channels.values():
            channels.close()
