"""The glue people use today, under the same faults as ours: a sketch that prints lines, a script
that reads the port and publishes, mosquitto, and a script that writes what it receives into files
for a job to pick up.

In: a bench. Out: a history as of any run, for the same checker. Its programs are written as such
scripts are: without mistakes, and without more care than their libraries take.
"""
