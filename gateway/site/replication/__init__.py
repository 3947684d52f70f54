"""Spool rows on a second member's disk (`[site] copies = 2`): the sending side, the receiving side,
and their messages. Sans-IO.
"""
