"""Compiled modules, missing where there is no C compiler.

net/native/movers.py and net/native/syncs.py work without them.
"""
