"""Entry point for Spark's data source discovery: DefaultSource in a module named pyspark_*."""

from odradek.spark.data_source import OdradekDataSource as DefaultSource

__all__ = ["DefaultSource"]
