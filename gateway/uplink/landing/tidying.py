"""Removal of the leftovers of interruptions and earlier connections from a folder at a landing
place made of files.

In: the operations of a place, and a folder whose owner is this gateway. Out: fewer hidden files,
claims and proofs, and an error for each leftover that cannot be removed. Such an error does not
stop the removal of the others. Examples are a file `.nfs…`, a folder of a NAS such as `@eaDir`, and
any leftover at a server that refuses to delete.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from gateway.uplink.landing.proof import CLAIMS, Files, is_old, is_proof, kept_label
from gateway.uplink.manifest import ASIDE, INCOMING

T = TypeVar("T")


def tidy(files: Files, folder: str) -> list[Exception]:
    """Remove leftovers from a folder. If the replacement of a file was interrupted, give the old
    file its name again. Return the errors of leftovers that cannot be handled. If the landing place
    itself fails, return its error, too, and leave the remaining leftovers.
    """
    errors: list[Exception] = []

    def tried(action: Callable[[], T], otherwise: T) -> T:
        try:
            return action()
        except Exception as error:
            if files.trouble(error):
                raise
            errors.append(error)
            return otherwise

    steps = {f"{folder}/{INCOMING}": _hidden, f"{folder}/{CLAIMS}": _claim}
    kept: str | None = None
    nothing: list[str] = []
    try:
        if "/" not in folder:
            steps[folder] = _proof
            kept = kept_label(files, folder)
        for inner, step in steps.items():
            for name in tried(partial(files.names, inner), nothing):
                tried(partial(step, files, folder, name, kept), None)
    except Exception as error:
        errors.append(error)
    return errors


def _hidden(files: Files, folder: str, name: str, kept: str | None) -> None:
    path, final = f"{folder}/{INCOMING}/{name}", f"{folder}/{name.removesuffix(ASIDE)}"
    if name.endswith(ASIDE) and not files.stands(final):
        files.move(path, final)
    elif not is_proof(name) or is_old(name, kept):
        files.remove(path)


def _claim(files: Files, folder: str, name: str, kept: str | None) -> None:
    """Remove a claim: that of a batch if the batch's file exists, that of a proof if the proof is
    old.
    """
    if is_old(name, kept) if is_proof(name) else files.stands(f"{folder}/{name}"):
        _discard(files, f"{folder}/{CLAIMS}/{name}")


def _proof(files: Files, folder: str, name: str, kept: str | None) -> None:
    if is_old(name, kept):
        files.remove(f"{folder}/{name}")


def _discard(files: Files, path: str) -> None:
    """Remove a file or an empty folder."""
    try:
        files.remove(path)
    except Exception as error:
        if files.trouble(error):
            raise
        files.remove_folder(path)
