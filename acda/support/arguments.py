"""Types of settings that the command line shows as DIR, FILE, N."""

from pathlib import Path
from typing import Annotated

from acda.support.extras import need

need("tyro", "cli")
from tyro.conf import Fixed, Suppress, arg  # noqa: E402

Folder = Annotated[Path, arg(metavar="DIR")]
MaybeFolder = Annotated[Path | None, arg(metavar="DIR")]
MaybeFile = Annotated[Path | None, arg(metavar="FILE")]
Count = Annotated[int, arg(metavar="N")]
MaybeCount = Annotated[int | None, arg(metavar="N")]
Number = Annotated[float, arg(metavar="X")]
MaybeNumber = Annotated[float | None, arg(metavar="X")]
Name = Annotated[str, arg(metavar="NAME")]
NamedOptions = Annotated[dict[str, bool | int | float | str], arg(metavar="NAME VALUE …")]
# What the command line neither takes nor shows.
Digest = Annotated[str | None, Fixed, Suppress]
