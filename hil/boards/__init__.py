"""Boards under test: the simulated Uno as a process (`simulator`), and what a board's EEPROM says
it has published (`ledger`).
"""
