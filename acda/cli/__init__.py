"""The command line: one file per verb, imported only when it is called."""

import importlib
import io
import os
import sys

from acda.support.extras import need
from acda.support.lines import complain
from acda.support.names import Missing, unknown

VERBS = {
    "demo": "train the paper's toy pattern detector, an ordinary convolution beside an adaptive one",
    "train": "train a network with a recipe",
    "evaluate": "score a run or its weights again",
    "recipes": "list the recipes, or show one",
    "count": "count the people on photos",
    "upscale": "make photos larger",
    "denoise": "remove noise from photos",
    "restore": "apply a network of your own to photos",
    "export": "write a trained network for other programs: ONNX, or torch.export",
    "look": "draw what the filters of a network do on a photo",
    "explore": "show the filters under the pointer, on a page in the browser",
    "cost": "count parameters, multiply-adds and memory of a network, whole or layer by layer",
    "bench": "measure time and memory of the layer beside Conv2d, F.unfold and plain torch",
    "info": "print what this installation can do: versions, threads, vector instructions, backends",
}

# The arguments that a verb requires.
NEEDED = {
    "train": "RECIPE",
    "evaluate": "RUN --data DIR",
    "count": "PHOTO [PHOTO ...]",
    "upscale": "PHOTO [PHOTO ...]",
    "denoise": "PHOTO [PHOTO ...]",
    "restore": "PHOTO [PHOTO ...] --weights FILE",
    "export": "NAME --out FILE",
    "look": "PHOTO",
    "cost": "MODEL",
}


def main(argv: list[str] | None = None) -> int:
    """Run `acda VERB …`; returns the exit status."""
    _tolerate_odd_streams()
    verb, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if verb in ("-h", "--help"):
        print(_help())
        return 0
    if verb == "--version":
        from acda import __version__

        print(f"acda {__version__}")
        return 0
    if verb not in VERBS:
        complain("", unknown("verb", verb, VERBS))
        return 2
    if not rest and verb in NEEDED:
        print(f"usage: acda {verb} {NEEDED[verb]} [options]\n\nacda {verb} --help says more.", file=sys.stderr)
        return 2
    options = [part.partition("=")[0] for part in rest if part.startswith("--")]
    twice = next((option for option in options if options.count(option) > 1), None)
    if twice is not None:  # the last would win, silently
        complain(verb, f"{twice} is given twice. Give its values together.")
        return 2
    try:
        tyro = need("tyro", "cli")
        module = importlib.import_module(f"acda.cli.{verb}")
        if hasattr(module, "run"):  # a verb whose options depend on its first argument
            return int(module.run(rest) or 0)
        return int(tyro.cli(getattr(module, verb), args=rest, prog=f"acda {verb}") or 0)
    except BrokenPipeError:  # `acda recipes | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Missing as error:
        complain(verb, error)
        return 2
    except (ValueError, TypeError, OSError, ImportError) as error:
        complain(verb, error)
        return 1
    except KeyboardInterrupt:
        complain(verb, "stopped.")
        return 130


def _tolerate_odd_streams() -> None:
    """Do not fail on closed streams, or on streams that cannot encode the name of a photo."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _help() -> str:
    verbs = "\n".join(f"  {verb:<8} {line}" for verb, line in VERBS.items())
    return f"usage: acda VERB [options]\n\n{verbs}\n\nacda VERB --help lists the options of a verb."
