"""What every layer stands on: units, limits, errors.  Imports nothing of the project."""
