"""The store: what outlives a power cut. See README.md beside this file."""
