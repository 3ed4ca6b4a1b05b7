"""Python startup code for processes that Spark starts: they import PySpark from pip's installation.

By default Spark makes them look into a zip and a jar with the same files first. Modules from a zip are compiled again
in each process, which takes longer than the work of most of them.
"""

import sys

for archive in [path for path in sys.path if "/pyspark/" in path and path.endswith((".zip", ".jar"))]:
    sys.path.remove(archive)
    sys.path_importer_cache.pop(archive, None)
