"""Recorded links: which frames of a radio or a line arrived, and when. Read, described, drawn, and
replayed on our own frames.
"""
