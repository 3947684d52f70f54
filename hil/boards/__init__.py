"""Boards under test: the simulated Uno as a process (`simulator`), and the publications by its
EEPROM (`ledger`).
"""
