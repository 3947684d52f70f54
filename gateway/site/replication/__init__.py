"""Spool rows on a second member's disk (`[site] copies = 2`): both ends, and their messages.
Sans-IO.
"""
