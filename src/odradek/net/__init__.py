"""The asyncio shell around the core: sockets, timers, effects."""
