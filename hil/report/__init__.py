"""What a run leaves for people and machines. In: a history. Out: findings (`findings.py`), told as
text, HTML, JUnit XML and JSON.
"""
