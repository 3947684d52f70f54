"""The gateways of one site: a client that comes back at another one is known there (README.md)."""
