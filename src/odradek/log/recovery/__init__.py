"""Opening a log after a stop, clean or not."""
