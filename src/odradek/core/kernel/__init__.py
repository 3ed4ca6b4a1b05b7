"""Values and tools that all of the core shares: time, timers, parked requests, names, rights."""
