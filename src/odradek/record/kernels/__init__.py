"""The few loops that run once per record, compiled by Cython where there is a C compiler.

Each module is plain Python and runs as such, slowly; the .pxd beside it gives its names C types.  `_*.py` are not
compiled: `_copy` is what C's memcpy stands in for, `_shim` what stands in for Cython where it is not installed.
Nothing here makes an object per record, and no byte is read before its position was held against the end.
"""
