"""Tables about the devices, made from the rows of `publications`.

In: the changes up to a version of `publications`. Out: `…_devices` and `…_quality`. Each is changed
in one commit that also stores the version, so each row counts exactly once, even if the job is
interrupted.
"""
