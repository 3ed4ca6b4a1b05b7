"""Compiled modules, left out where there is no C compiler: net/movers.py and net/syncs.py then do without."""
