"""One file per API: the only place that knows both the wire and the core."""
