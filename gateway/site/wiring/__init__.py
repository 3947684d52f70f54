"""The site's rules connected to this gateway: its broker, its store and its links to other
members.
"""
