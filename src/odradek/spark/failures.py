"""Errors whose text is one sentence for the user, and the way to make Spark show only that sentence.

Spark's Python workers format an error with its traceback, which ends in the text; the driver puts that after its own
"Failed to plan ...". A worker with SPARK_HIDE_TRACEBACK in its environment formats only the text: that is the effect of
spark.sql.execution.pyspark.udf.hideTraceback.enabled, which would also hide the tracebacks of users' functions. This
module therefore sets the variable in a worker that is about to fail. The variable ends with the worker, because Spark
keeps no failed worker.
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
def without_traceback() -> Iterator[None]:
    """Let Spark show only the text of a PipelineError, a ClientError or a Refused; others are bugs.

    This decorates the methods that Spark calls. A generator is called before it runs, so it uses this inside.
    """
    try:
        yield
    except (PipelineError, ClientError, Refused):
        _log.debug("This is shown without its traceback:", exc_info=True)
        if _is_spark_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise


def _is_spark_worker() -> bool:
    """Return whether Spark started this process for Python code: its main module is one of PySpark's."""
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    return specification is not None and specification.name.startswith("pyspark.")
