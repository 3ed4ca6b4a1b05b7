"""Third-party clients, each behind the same interface, so that one test can run with all of them.

`client` defines the interface of a client, `records` the data it sends; one module for each client, and `registry`
lists them.
"""
