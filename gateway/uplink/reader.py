"""A separate process that reads a Parquet file on standard input and writes its columns and labels
to standard output (marshal). The process is separate because some damaged files make arro3 end the
whole process.
"""

import io
import marshal
import sys

from arro3.io import read_parquet


def main() -> None:
    reader = read_parquet(io.BytesIO(sys.stdin.buffer.read()))
    labels = {key.decode(): value.decode() for key, value in reader.schema.metadata.items()}
    table = reader.read_all()
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    marshal.dump((columns, labels), sys.stdout.buffer)


if __name__ == "__main__":
    main()
