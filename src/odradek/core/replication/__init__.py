"""Followers: their fetches, their leaders, and how their logs are kept equal to the leader's."""
