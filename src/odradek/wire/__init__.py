"""Bytes to messages and back, for every version of the protocol.  No I/O."""
