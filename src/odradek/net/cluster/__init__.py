"""Cluster membership of this broker."""
