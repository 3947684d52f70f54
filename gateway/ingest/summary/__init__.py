"""Tables about the devices, made from the rows of `publications`.

In: the changes of a version of `publications`. Out: `…_devices` and `…_quality`, each changed in
one commit that also stores the version, so each row counts exactly once, whenever the job is
interrupted.
"""
