"""The demo: a real data set, real clients, the broker and a PySpark pipeline, with kill -9 half-way.

    CSV ──librdkafka──> topic flights ──Spark stream──> topic departures-by-hour ──librdkafka──> checks
                              └───────odradek load────> Delta table ───────────────deltalake───> checks

Run it with scripts/demo or python -m odradek.demo; docs/DEMO.md describes it. To learn how to use Odradek, read feed.py
(produce), pipeline.py (PySpark) and hours.py (consume). Each is a program of one page that uses nothing of the broker
except its address.
"""
