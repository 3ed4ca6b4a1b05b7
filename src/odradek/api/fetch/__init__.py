"""Fetch, ListOffsets and OffsetForLeaderEpoch."""
