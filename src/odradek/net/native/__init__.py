"""Compiled modules, left out where there is no C compiler: net/native/movers.py and net/native/syncs.py then do
without."""
