"""The cluster as a client sees it: metadata, leaders and coordinators."""
