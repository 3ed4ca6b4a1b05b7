"""Followers: what they fetch, from whom, and how their logs follow."""
