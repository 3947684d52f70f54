"""A folder of small files, in memory."""


class Files(dict[str, bytes]):
    """A storage.Folder in memory."""

    def read(self, name: str) -> bytes | None:
        return self.get(name)

    def write(self, name: str, data: bytes) -> None:
        self[name] = data

    def names(self) -> list[str]:
        return sorted(self)

    def delete(self, name: str) -> None:
        del self[name]
