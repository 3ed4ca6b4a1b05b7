"""What the kernels use of the `cython` module, for machines that have it neither at build nor at run time."""

from contextlib import nullcontext

compiled = False
nogil = nullcontext()
