"""`make test`: all tests. Those of the ingest run beside the others: Spark computes while the
others wait for boards, disks and timeouts.

In: options of pytest; with any, one pytest runs as usual. Out: what the tests say, one group after
the other, and an exit code that is not 0 if one failed.
"""

import subprocess
import sys
import tempfile

ASIDE = "tests/ingest"


def pytest(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", *options]


def main() -> int:
    if options := sys.argv[1:]:
        return subprocess.run(pytest(*options), check=False).returncode
    with tempfile.TemporaryFile() as said:
        aside = subprocess.Popen(
            pytest(ASIDE, "-o", "cache_dir=build/pytest-aside"), stdout=said, stderr=said
        )
        try:
            others = subprocess.run(pytest(f"--ignore={ASIDE}"), check=False).returncode
            print(f"{ASIDE}:", flush=True)
            ended = aside.wait()
        except BaseException:
            aside.terminate()
            aside.wait()
            raise
        finally:
            said.seek(0)
            sys.stdout.buffer.write(said.read())
            sys.stdout.flush()
    return others or ended


if __name__ == "__main__":
    sys.exit(main())
