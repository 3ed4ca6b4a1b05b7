"""Verbs of the command line, one file each, combined by app/commands/command_tree.py."""
