"""A typical do-it-yourself setup (the glue) under the same faults as Onceway: a sketch that prints
lines, a script that reads the port and publishes, mosquitto, and a script that writes the received
messages into files for a job to read. In: a bench. Out: a history like that of any run, for the
same checker. The glue's programs are typical scripts: correct, but they rely on their libraries for
everything else.
"""
