"""The demo: a real data set through a real client, the broker and a PySpark pipeline, with kill -9 half-way.

    CSV ──librdkafka──> topic flights ──Spark stream──> topic departures-by-hour ──librdkafka──> checks
                              └───────odradek load────> Delta table ───────────────deltalake───> checks

Run it with scripts/demo or python -m odradek.demo; docs/DEMO.md tells what happens.  To learn how to use Odradek, read
feed.py (produce), pipeline.py (PySpark) and hours.py (consume): each is a program of one page that uses nothing of the
broker but its address.
"""
