"""The store: all state that survives a power cut. See README.md beside this file."""
