"""TLS connections between members of a site. In: addresses of members and their certificates. Out:
frames of members that are who they say.
"""
