"""The few loops that run once per record, compiled by Cython if a C compiler is available.

Each module is plain Python and also runs interpreted, slowly. Its .pxd file gives the names C types. Modules named
`_*.py` are not compiled: `_copy` replaces C's memcpy, and `_shim` replaces Cython if it is not installed. No loop
creates an object per record, and every position is checked against the end before it is read.
"""
