"""Tables about the devices, made of the rows of `publications`.

In: what a version of `publications` has that the one before had not. Out: `…_devices` and
`…_quality`, each changed in one commit that also stores up to which version it goes, so no row
counts twice or not at all, whenever the job is interrupted.
"""
