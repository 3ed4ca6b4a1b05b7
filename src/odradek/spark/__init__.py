"""Apache Spark pipeline: the `odradek` data source and sink, the loader into Delta tables, a session.

It works with any Kafka broker through odradek.client and needs no jar: Python, Arrow and the pyspark wheel.
docs/SPARK.md has the measurements of PySpark and the reasons for the design.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.base.extras import absent, not_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if absent("pyspark"):  # Clearer than an error about py4j.
    raise ModuleNotFoundError(not_installed(["pyspark"], "spark"), name="pyspark")

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the data source with a session that does not find it (DATA_SOURCE_NOT_FOUND)."""
    from odradek.spark.session import register  # PySpark takes a second to import.

    register(spark)
