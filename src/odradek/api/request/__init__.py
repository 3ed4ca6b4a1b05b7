"""A request on its way to its handler: the call, the gate, and the outcome."""
