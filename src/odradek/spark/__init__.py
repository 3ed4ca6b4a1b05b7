"""The data pipeline on Spark: sources, sinks and the lake loader."""
