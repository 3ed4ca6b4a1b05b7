"""Configuration, command line, and the function that builds a broker from its parts."""
