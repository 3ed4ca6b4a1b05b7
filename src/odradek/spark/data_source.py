"""Data source `odradek`: spark.read.format("odradek"), readStream, write and writeStream.

Spark finds it without registration through the top-level module pyspark_odradek. The name kafka is reserved by Spark.
Spark creates an instance for every step (schema, planning, each write), each in a separate Python process. An instance
only converts options into readers and writers.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from odradek.spark.batch_reader import BatchReader
from odradek.spark.failures import without_traceback
from odradek.spark.sink import BatchWriter, StreamWriter
from odradek.spark.source_options import BadOption, Mode, ReadOptions, columns_of, read_options, write_options
from odradek.spark.source_schema import schema_of
from odradek.spark.stream_reader import MisconfiguredStreamReader, StreamReader


class OdradekDataSource(DataSource):
    """Data source. Spark forbids a constructor of our own; self.options has lower-case keys."""

    @classmethod
    def name(cls) -> str:
        return "odradek"

    @without_traceback()
    def schema(self) -> StructType:
        return schema_of(columns_of(self.options))

    @without_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._read_options(schema, Mode.BATCH))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name.
        try:
            return StreamReader(self._read_options(schema, Mode.STREAM))
        except BadOption as error:
            return MisconfiguredStreamReader(error)

    @without_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadOption("Overwriting a topic is not supported; use mode append.")
        return BatchWriter(write_options(self.options), schema)

    @without_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        # overwrite means outputMode("complete"): every batch writes all groups again, as in Spark's own sink.
        return StreamWriter(write_options(self.options), schema)

    def _read_options(self, schema: StructType, mode: Mode) -> ReadOptions:
        if schema != self.schema():
            raise BadOption("The schema of Kafka records is fixed; remove .schema(...) from the query.")
        return read_options(self.options, mode)
