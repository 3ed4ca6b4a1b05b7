"""Values of .option(...): the names of Spark's own source, and one-sentence errors for invalid values."""

import pytest

from odradek.base.units import TopicName, TopicPartition
from odradek.client.connection.client_config import READ_COMMITTED, READ_UNCOMMITTED
from odradek.record.compression import Codec
from odradek.spark.source_options import (
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    BadOption,
    Everywhere,
    Mode,
    Pace,
    Split,
    Subscribe,
    SubscribePattern,
    columns_of,
    duration_ms,
    read_options,
    write_options,
)

BASE = {"kafka.bootstrap.servers": "localhost:9092"}


def parsed(mode=Mode.BATCH, **given):
    return read_options(BASE | {"subscribe": "t"} | given, mode)


def test_defaults_match_sparks_own_source():
    batch, stream = parsed(), parsed(Mode.STREAM)
    assert (batch.starting, batch.ending) == (Everywhere(-2), Everywhere(-1))
    assert (stream.starting, stream.ending) == (Everywhere(-1), Everywhere(-1))
    assert batch.reading.fail_on_data_loss
    assert not batch.reading.columns.headers
    assert batch.reading.client.isolation_level == READ_UNCOMMITTED
    assert batch.pace == Pace(None, None, 900_000)
    assert batch.reading.poll_timeout_ms == 120_000


def test_option_names_are_case_insensitive():
    options = parsed(startingoffsets="earliest", MAXOFFSETSPERTRIGGER="7", failondataloss="FALSE")
    assert options.starting == Everywhere(-2)
    assert options.pace.max_offsets == 7
    assert not options.reading.fail_on_data_loss


def test_topics_are_selected_in_three_ways():
    assert parsed(subscribe=" b, a ,b").selection == Subscribe(("a", "b"))
    assert read_options(BASE | {"subscribepattern": "a.*"}, Mode.BATCH).selection == SubscribePattern("a.*")
    assert read_options(BASE | {"assign": '{"a":[1,0]}'}, Mode.BATCH).selection == Assign(
        (TopicPartition(TopicName("a"), 0), TopicPartition(TopicName("a"), 1))
    )


def test_common_timestamp_takes_precedence_over_timestamps_and_offsets():
    times, offsets = '{"t":{"0":5}}', '{"t":{"0":9}}'
    assert parsed(startingTimestamp="1", startingOffsetsByTimestamp=times, startingOffsets=offsets).starting == AtTime(
        1
    )
    by_times = parsed(startingOffsetsByTimestamp=times, startingOffsets=offsets).starting
    assert by_times == AtTimes({TopicPartition(TopicName("t"), 0): 5})
    assert parsed(endingOffsets=offsets).ending == AtOffsets({TopicPartition(TopicName("t"), 0): 9})


def test_kafka_options_are_passed_to_the_client():
    client = parsed(**{"kafka.isolation.level": "read_committed", "kafka.group.id": "g"}).reading.client
    assert client.client_id == "odradek-spark"
    assert parsed(**{"kafka.client.id": "mine"}).reading.client.client_id == "mine"
    assert client.isolation_level == READ_COMMITTED
    assert client.bootstrap_servers == "localhost:9092"


def test_other_options_are_parsed():
    options = parsed(
        minPartitions="4", maxRecordsPerPartition="10", minOffsetsPerTrigger="3", maxTriggerDelay="2m",
        startingOffsetsByTimestampStrategy="latest", **{"fetchOffset.numRetries": "0"},
    )  # fmt: skip
    assert options.split == Split(None, 4, 10)
    assert options.pace == Pace(None, 3, 120_000)
    assert options.missing_time_is_latest
    columns = columns_of({"includeheaders": "true", "includekey": "false"})
    assert (columns.headers, columns.key, columns.value) == (True, False, True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
        (BASE, "exactly one of the options assign, subscribe and subscribePattern; none is set"),
        (BASE | {"subscribe": "t", "assign": "{}"}, "assign and subscribe are set"),
        (BASE | {"subscribe": " , "}, "contains no topic"),
        (BASE | {"subscribePattern": "("}, "Invalid regular expression"),
        (BASE | {"assign": "x"}, "Option assign: 'x' is not JSON"),
        (BASE | {"subscribe": "t", "startingOffsets": "latest"}, "startingOffsets must not be latest"),
        (BASE | {"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets must not be latest"),
        (BASE | {"subscribe": "t", "endingOffsets": "earliest"}, "endingOffsets must not be earliest"),
        (BASE | {"subscribe": "t", "startingOffsets": "newest"}, "Option startingOffsets: 'newest' is not JSON"),
        (BASE | {"subscribe": "t", "startingTimestamp": "now"}, "startingTimestamp must be an integer"),
        (BASE | {"subscribe": "t", "maxOffsetsPerTrigger": "0"}, "at least 1"),
        (BASE | {"subscribe": "t", "minPartitions": "-3"}, "at least 1"),
        (BASE | {"subscribe": "t", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "exceeds"),
        (BASE | {"subscribe": "t", "maxTriggerDelay": "soon"}, "must be a duration"),
        (BASE | {"subscribe": "t", "failOnDataLoss": "perhaps"}, "must be true or false"),
        (BASE | {"subscribe": "t", "startingOffsetsByTimestampStrategy": "guess"}, "must be error or latest"),
        (BASE | {"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, "cannot be set: use startingOffsets"),
        (BASE | {"subscribe": "t", "kafka.enable.auto.commit": "true"}, "cannot be set"),
        (
            BASE | {"subscribe": "t", "kafka.isolation.level": "serializable"},
            "Option kafka.isolation.level='serializable' must be read_committed or read_uncommitted",
        ),
        (
            BASE | {"subscribe": "t", "kafka.security.protocol": "SASL_SSL"},
            "^Option kafka.security.protocol=SASL_SSL",
        ),
        (BASE | {"subscribe": "t", "kafka.sasl.mechanism": "PLAIN"}, "^Option kafka.sasl.mechanism is not supported"),
        (
            BASE | {"subscribe": "t", "kafka.fetch.max.bytes": "many"},
            "^Option kafka.fetch.max.bytes='many' must be an integer",
        ),
        (
            BASE | {"subscribe": "t", "kafka.security.protocol": "SSL", "kafka.ssl.keystore.key": "k"},
            "^Option kafka.ssl.keystore.key is set without option kafka.ssl.keystore.certificate.chain",
        ),
        (
            {"subscribe": "t", "kafka.bootstrap.servers": "here"},
            "^Option kafka.bootstrap.servers: invalid address 'here'",
        ),
        (
            {"subscribe": "t", "KAFKA.bootstrap.servers": "here"},
            "^Option kafka.bootstrap.servers: invalid address 'here'",
        ),
    ],
)
def test_invalid_option_is_refused_with_one_sentence(given, message):
    with pytest.raises(BadOption, match=message) as refused:
        read_options(given, Mode.BATCH)
    assert "\n" not in str(refused.value)


def test_stream_refuses_an_ending_bound():
    with pytest.raises(BadOption, match="endingTimestamp is only valid in batch"):
        parsed(Mode.STREAM, endingTimestamp="5")


def test_sink_options_are_parsed():
    assert write_options(BASE | {"topic": "t"}).topic == "t"
    assert write_options(BASE).topic is None
    assert write_options(BASE | {"kafka.compression.type": "ZSTD"}).codec is Codec.ZSTD
    with pytest.raises(BadOption, match="type must be none or gzip"):
        write_options(BASE | {"kafka.compression.type": "rar"})
    with pytest.raises(BadOption, match="bootstrap"):
        write_options({"topic": "t"})


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("15m", 900_000), ("10 seconds", 10_000), ("500ms", 500), ("7", 7), ("2 hours", 7_200_000)],
)
def test_durations_are_parsed(text, milliseconds):
    assert duration_ms(text, "x") == milliseconds
