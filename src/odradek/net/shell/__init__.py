"""The shell around the core: effects, answers, and the outbox."""
