"""Results of a run for people and machines. In: a history. Out: findings (`findings.py`), as text,
HTML, JUnit XML and JSON.
"""
