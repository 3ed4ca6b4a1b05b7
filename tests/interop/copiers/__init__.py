"""Consume, transform, produce: programs that copy one topic to another, each record once, for several clients.

All take ADDRESS GROUP PROTOCOL TRANSACTIONAL_ID SOURCE SINK, and copy until they are stopped or killed; every record
goes to the same partition. On an unrecoverable error they exit, and are restarted.
"""
