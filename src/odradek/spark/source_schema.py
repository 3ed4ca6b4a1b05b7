"""Columns of a Kafka record, with the names and types of Spark's own Kafka source.

Spark rejects an Arrow batch whose schema differs in any way from the one it derived, including nullability. Spark's own
function therefore derives the Arrow schema from the same StructType.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.spark.source_options import Columns

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}


def schema_of(columns: Columns) -> StructType:
    excluded = {
        name
        for name, is_included in (("headers", columns.headers), ("key", columns.key), ("value", columns.value))
        if not is_included
    }
    return StructType([StructField(name, kind) for name, kind in _COLUMNS.items() if name not in excluded])


def arrow_schema(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
