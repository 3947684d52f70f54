"""Boards under test: the simulated Uno as a process (`simulator`), and its publications, read from
its EEPROM (`ledger`).
"""
