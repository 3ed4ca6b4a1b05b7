"""For the PYTHONPATH of whoever starts Spark: its Python processes import PySpark from where pip has installed it.

Spark has them look into a zip of the same files first, and into a jar.  From a zip every module is compiled anew in
each process, which takes longer than all else that most of them do.
"""

import sys

for archive in [path for path in sys.path if "/pyspark/" in path and path.endswith((".zip", ".jar"))]:
    sys.path.remove(archive)
    sys.path_importer_cache.pop(archive, None)
