"""Messages for subscribers at other members: topic filters in one direction, packets in the other.
Sans-IO.
"""
