"""This broker as a member of its cluster."""
