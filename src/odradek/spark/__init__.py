"""The pipeline on Apache Spark: the `odradek` data source and sink, the loader into Delta tables, a session that fits.

Works against any Kafka broker through odradek.client, and needs no jar: Python, Arrow and the pyspark wheel.
What was measured of PySpark, and why things are as they are: docs/SPARK.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.base.extras import absent, not_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if absent("pyspark"):  # Better said than that there is no py4j.
    raise ModuleNotFoundError(not_installed(["pyspark"], "spark"), name="pyspark")

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes the data source known to a session that does not find it by itself (DATA_SOURCE_NOT_FOUND)."""
    from odradek.spark.session import register  # PySpark takes a second to import.

    register(spark)
