"""Arguments that several verbs take, shown as PHOTO and DIR instead of STR and PATH."""

from pathlib import Path
from typing import Annotated

import tyro

arg = tyro.conf.arg
Photos = Annotated[tuple[str, ...], arg(metavar="PHOTO [PHOTO ...]", help_behavior_hint="(required)")]
OnePhoto = Annotated[Path, arg(metavar="PHOTO")]
Out = Annotated[Path | None, arg(metavar="FILE|DIR", aliases=("-o",), help_behavior_hint="(optional)")]
Folder = Annotated[Path, arg(metavar="DIR")]
Weights = Annotated[str, arg(metavar="NAME|FILE|DIR")]
Number = Annotated[float, arg(metavar="X")]
Tile = Annotated[int | None, arg(metavar="PIXELS", help_behavior_hint="(optional)")]
Suffix = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="(optional)")]
Format = Annotated[str | None, arg(metavar="FORMAT", help_behavior_hint="(optional)")]
Count = Annotated[int, arg(metavar="N")]
