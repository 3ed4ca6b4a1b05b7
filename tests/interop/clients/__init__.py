"""Clients that other people wrote, each behind one face, so that one test can be asked of all of them.

`client` says what a client is asked, `records` what it sends; one module for each client, and `registry` lists them.
"""
