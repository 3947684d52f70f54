"""MQTT 5.0, 3.1.1 and 3.1 without I/O. See README.md beside this file."""
