"""Asyncio shell around the core: sockets, timers and effects."""
