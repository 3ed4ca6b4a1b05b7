"""The pipeline on Apache Spark: the `odradek` data source and sink, the loader into Delta tables, a session that fits.

Works against any Kafka broker through odradek.client, and needs no jar: Python, Arrow and the pyspark wheel.
What was measured of PySpark, and why things are as they are: docs/SPARK.md.
"""
