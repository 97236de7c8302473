import json

from acda.backends import native
from acda.cli import main


def test_info_is_complete(capsys):
    assert main(["info"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {"acda", "torch", "python", "threads", "vectors", "backends", "commit"} <= set(facts)
    assert facts["backends"]["native"].startswith("yes" if native.MISSING is None else "it ")
