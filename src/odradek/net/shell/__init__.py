"""Shell around the core: effects, responses and the outbox."""
