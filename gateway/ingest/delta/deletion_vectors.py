"""Deletion vectors: the deleted rows of a data file, in a separate file (Delta protocol, "Deletion
Vectors").

In: the `deletionVector` of an action in a commit. Out: the vector's file, and whether the file
contains the complete vector. A `DELETE` adds the same data file again, with another vector.
"""

from pathlib import Path
from typing import Any
from uuid import UUID
from zlib import crc32

BESIDE = "u"
"""Value of `storageType` for a vector in a file in the table's folder. Other vectors are in the
commit itself, or in a file of another table, named by its absolute path.
"""

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_ID = 20
"""Number of characters of the identifier of a vector's file: a UUID in Z85."""


def file_of(vector: dict[str, Any] | None) -> str | None:
    """Return the path of a vector's file, relative to the table's folder. None if there is no
    vector, or if it is not in a file in this folder.
    """
    if vector is None or vector["storageType"] != BESIDE:
        return None
    folder, name = vector["pathOrInlineDv"][:-_ID], vector["pathOrInlineDv"][-_ID:]
    words = []
    for start in range(0, _ID, 5):
        word = 0
        for digit in name[start : start + 5]:
            word = word * 85 + _Z85.index(digit)
        words.append(word.to_bytes(4))
    file = f"deletion_vector_{UUID(bytes=b''.join(words))}.bin"
    return f"{folder}/{file}" if folder else file


def is_whole(table: Path, vector: dict[str, Any] | None) -> bool:
    """Whether a vector is in its file as it was written: size, bytes and CRC-32. True if there is
    no vector, or if it is not in a file in the table's folder.
    """
    name = file_of(vector)
    if vector is None or name is None:
        return True
    try:
        with (table / name).open("rb") as file:
            file.seek(vector["offset"])
            size = int.from_bytes(file.read(4))
            content, check = file.read(vector["sizeInBytes"]), file.read(4)
    except FileNotFoundError:
        return False
    return size == len(content) == vector["sizeInBytes"] and check == crc32(content).to_bytes(4)
