"""TLS connections between members of a site. In: addresses of members and their certificates. Out:
frames of authenticated members.
"""
