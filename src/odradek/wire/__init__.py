"""Encoding and decoding of messages, for every version of the protocol, without I/O."""
