"""Replacements for the parts of the `cython` module used by the kernels, for systems without Cython."""

from contextlib import nullcontext

compiled = False
nogil = nullcontext()
