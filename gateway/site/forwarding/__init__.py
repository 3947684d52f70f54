"""Messages for subscribers at other members: topic filters one way, packets the other way.
Sans-IO.
"""
