"""Handlers of the protocol's APIs, one file each; only this package knows both the wire and the core."""
