"""The verbs of the command line, one file each; tree.py puts them together."""
