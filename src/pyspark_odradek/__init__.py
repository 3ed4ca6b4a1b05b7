"""Where Spark finds the data source by itself: it looks for DefaultSource in every module named pyspark_*."""

from odradek.spark.data_source import OdradekDataSource as DefaultSource

__all__ = ["DefaultSource"]
