import json

from acda.backends import native, triton
from acda.cli import main


def test_info_is_complete(capsys):
    assert main(["info"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {"acda", "torch", "python", "threads", "vectors", "backends", "commit"} <= set(facts)
    assert facts["backends"]["native"].startswith("yes" if native.MISSING is None else "it ")
    assert facts["backends"]["triton"] == triton.state()


def test_info_says_why_the_gpu_kernels_cannot_run(capsys, monkeypatch):
    monkeypatch.setattr(triton, "why_not_here", lambda: "it needs compute capability 8.0; this GPU has 7.5")
    main(["info"])
    told = json.loads(capsys.readouterr().out)["backends"]["triton"]
    assert told == "it needs compute capability 8.0; this GPU has 7.5"
