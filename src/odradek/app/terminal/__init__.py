"""What a person sees in a terminal: output, progress and failures."""
