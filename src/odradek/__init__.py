"""Odradek: Apache Kafka in Python, with its data pipeline on Apache Spark."""

__version__ = "0.1.0"
