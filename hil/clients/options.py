"""Common options of the programs that publish."""

from typing import Annotated

import typer

from hil.clients.payloads import Form

Port = Annotated[int, typer.Option(help="Port of the broker, on this machine.")]
Name = Annotated[str, typer.Option(help="Client identifier, and the device of the publications.")]
Messages = Annotated[int, typer.Option(min=1)]
PayloadForm = Annotated[Form, typer.Option(help="Format of the payloads: text or senml.")]
PayloadBytes = Annotated[int, typer.Option(min=0, help="Length of a text payload, in bytes.")]
PerS = Annotated[float, typer.Option(help="Largest number of messages per second.")]
Seed = Annotated[str, typer.Option(help="Seed: the same seed makes the same payloads.")]
