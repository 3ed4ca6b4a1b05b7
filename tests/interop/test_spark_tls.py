"""Spark's source, sink and loader over TLS, with certificates on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from rich.console import Console
from spark_support import raises_one_sentence, spark
from tls_brokers import EXPIRED, MUTUAL, Secured, behind_proxies, keystore, trusting

from odradek.spark.load import LoadOptions, run
from support.certificates import PASSWORD, written

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with ExitStack() as stack:
        yield behind_proxies(tmp_path_factory.mktemp("broker"), stack)


def options(secured: Secured) -> dict[str, str]:
    texts = trusting(secured) | keystore(secured.authority.known("spark", common_name="spark"))
    return {f"kafka.{name}": text for name, text in texts.items()} | {
        "kafka.bootstrap.servers": secured.addresses[MUTUAL]
    }


def test_records_are_written_read_and_loaded_over_tls(secured: Secured, tmp_path: Path) -> None:
    topic, given = f"t-{uuid4().hex}", options(secured)
    rows = spark().sql("SELECT CAST(id AS STRING) AS value FROM range(5000)")
    rows.write.format("odradek").mode("append").options(**given, topic=topic).save()
    read = spark().read.format("odradek").options(**given, subscribe=topic).load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(5000))

    (
        spark()
        .readStream.format("odradek")
        .options(**given, subscribe=topic, startingOffsets="earliest")
        .load()
        .selectExpr("value")
        .writeStream.format("odradek")
        .options(**given, topic=f"{topic}-copy", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    copied = spark().read.format("odradek").options(**given, subscribe=f"{topic}-copy").load()
    assert copied.count() == 5000
    secrets = [PASSWORD, *given["kafka.ssl.keystore.key"].splitlines()[1:2]]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert not [secret for secret in secrets if secret.encode() in kept], "a checkpoint lies around for long"

    kafka = {name.removeprefix("kafka."): text for name, text in given.items()}
    servers = kafka.pop("bootstrap.servers")
    assert run(LoadOptions(servers, tmp_path / "lake", (topic,), kafka=kafka), Console(quiet=True)) == 0
    assert len(DeltaTable(tmp_path / "lake").to_pyarrow_table()) == 5000


def test_tasks_read_stores_from_their_own_files(secured: Secured, tmp_path: Path) -> None:
    given = {
        "kafka.bootstrap.servers": secured.addresses[MUTUAL],
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": written(tmp_path / "trust.p12", secured.authority.pkcs12()),
        "kafka.ssl.truststore.password": PASSWORD,
        "kafka.ssl.keystore.location": written(tmp_path / "me.p12", secured.authority.known("me").pkcs12()),
        "kafka.ssl.keystore.password": PASSWORD,
    }
    topic = f"t-{uuid4().hex}"
    spark().sql("SELECT 'v' AS value").write.format("odradek").mode("append").options(**given, topic=topic).save()
    assert spark().read.format("odradek").options(**given, subscribe=topic).load().count() == 1


def test_a_rejected_certificate_is_reported_at_once(secured: Secured) -> None:
    given = options(secured) | {"kafka.bootstrap.servers": secured.addresses[EXPIRED]}
    with raises_one_sentence("the broker's certificate is not trusted: certificate has expired"):
        spark().read.format("odradek").options(**given, subscribe="any").load().count()
