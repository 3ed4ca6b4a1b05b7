"""Errors whose text is one sentence for a person, and how Spark comes to show the sentence and nothing before it.

Spark's Python workers format an error with its traceback, which ends in the text; the driver puts that after its own
"Failed to plan ...".  A worker that finds SPARK_HIDE_TRACEBACK in its environment formats the text alone: that is how
spark.sql.execution.pyspark.udf.hideTraceback.enabled reaches it, which would hide the tracebacks of users' functions
too.  So the variable is set in the worker that is about to fail, and ends with it: Spark keeps no worker that failed.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.base.errors import Refused
from odradek.client.connection.client_errors import ClientError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"

_log = logging.getLogger(__name__)


class PipelineError(Exception):
    """Base class of the pipeline's own errors; str() of each is one sentence."""


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Let Spark show only the text of a PipelineError, a ClientError or a Refused; any other is a bug.

    It decorates what Spark calls.  A generator is called before it runs, so it has this inside.
    """
    try:
        yield
    except (PipelineError, ClientError, Refused):
        _log.debug("This is shown without its traceback:", exc_info=True)
        if _is_spark_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise


def _is_spark_worker() -> bool:
    """True in a process that Spark started for Python code: its main module is one of PySpark's."""
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    return specification is not None and specification.name.startswith("pyspark.")
