"""A site whose landing place and tables are in one bucket of a real S3 server (SeaweedFS)."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import s3fs
from deltalake import DeltaTable

from gateway.ingest import command
from tests.ingest.processes import HERE, SHORT_LIVED_JAVA, Key, Site, environment_of
from tests.uplink.servers import S3Server


class S3Site(Site):
    """A site whose landing place and tables are in one bucket. checkpoint_there: whether Spark's
    checkpoint is in the bucket, too.
    """

    def __init__(
        self,
        folder: Path,
        server: S3Server,
        monkeypatch: pytest.MonkeyPatch,
        checkpoint_there: bool = False,
    ) -> None:
        super().__init__(folder)
        self.endpoint = f"http://127.0.0.1:{server.port}"
        for name, value in {
            "AWS_ACCESS_KEY_ID": server.KEY,
            "AWS_SECRET_ACCESS_KEY": server.SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",  # deltalake refuses HTTP without this
            **SHORT_LIVED_JAVA,
        }.items():
            monkeypatch.setenv(name, value)
        root = f"{server.BUCKET}/{folder.name}"
        self.files = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
        self.at_s3 = f"s3://{root}/landing"
        self.on_s3 = f"s3a://{root}/publications"
        if checkpoint_there:
            self.checkpoints = f"s3a://{root}"
        self.files.put(f"{folder}/publications_trusted.json", f"{self.on_s3}_trusted.json")
        self.upload()

    def upload(self) -> None:
        """Copy to the bucket the batches that `land` has made."""
        self.files.put(f"{self.landing}/", f"{self.at_s3}/", recursive=True)

    def delete(self, location: str) -> None:
        """Delete a table with its folders. SeaweedFS keeps empty folders; Amazon's S3 has no
        folders.
        """
        self.files.rm(location, recursive=True)
        bucket, _, folder = location.removeprefix("s3a://").partition("/")
        for name in (f"{folder}/_delta_log/", f"{folder}/_onceway/", f"{folder}/"):
            self.files.call_s3("delete_object", Bucket=bucket, Key=name)

    @property
    def conf(self) -> list[str]:
        s3a = {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
        }
        settings = [f"spark.hadoop.fs.s3a.{key}={value}" for key, value in s3a.items()]
        return [*settings, "spark.sql.codegen.wholeStage=false"]

    def start(self, *dying: str, table: str = "", **options: Any) -> subprocess.Popen[bytes]:
        return super().start(
            *dying, landing=self.at_s3, table=table or self.on_s3, conf=self.conf, **options
        )

    def upkeep(self, *words: str) -> None:
        line = [Path(sys.executable).with_name("onceway"), "ingest", *words]
        conf = [part for one in self.conf for part in ("--conf", one)]
        done = subprocess.run(
            [*line, "--table", self.on_s3, "--master", "local[1]", "--memory", "1g", *conf],
            capture_output=True,
            check=False,
            timeout=400,
        )
        assert done.returncode == 0, done.stderr

    def sql(self, statement: str) -> None:
        """Run an SQL statement in another Spark process, as a user does."""
        script, options = str(HERE / "statement.py"), [statement, self.on_s3]
        line = command.build(script, options, "local[1]", "1g", self.conf, downloaded=True)
        done = subprocess.run(
            line.submitted().arguments,
            env=environment_of(line.submitted()),
            capture_output=True,
            check=False,
            timeout=400,
        )
        assert done.returncode == 0, done.stderr

    def keys_by_spark(self) -> Counter[Key]:
        """Return the keys of the publications as Spark reads them. deltalake cannot read every
        table here.
        """
        found = self.folder / "found"
        self.sql(
            f"INSERT OVERWRITE LOCAL DIRECTORY '{found}' USING json"
            f" SELECT device, incarnation, sequence FROM delta.`{self.on_s3}`"
        )
        lines = (line for part in found.glob("*.json") for line in part.read_text().splitlines())
        rows = map(json.loads, lines)
        return Counter((one["device"], one["incarnation"], one["sequence"]) for one in rows)

    def delta(self, suffix: str = "") -> DeltaTable:
        return DeltaTable(f"{self.on_s3}{suffix}")

    def report(self) -> dict[str, Any]:
        """Return the output of `onceway ingest report`, which does not use Spark."""
        line = [Path(sys.executable).with_name("onceway"), "ingest", "report", "--json"]
        said = subprocess.run(
            [*line, "--landing", self.at_s3, "--table", self.on_s3],
            capture_output=True,
            check=False,
        )
        assert said.returncode == 5, said.stderr  # 5, because one batch is damaged
        return dict(json.loads(said.stdout))
