"""Consume, transform, produce: programs that copy one topic to another, each record once, with one client each.

All take ADDRESS GROUP PROTOCOL TRANSACTIONAL_ID SOURCE SINK, and copy until they are told to stop, or killed; every
record goes to the partition it came from.  What they can't go on from they end with, to be started again.
"""
