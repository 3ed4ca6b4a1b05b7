"""Configuration, command line, and the one function that builds everything."""
