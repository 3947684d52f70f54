"""Mutants: does a test fail when one operator of a module is replaced?"""
