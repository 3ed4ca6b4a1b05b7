"""Terminal output of commands: results, progress and failures."""
