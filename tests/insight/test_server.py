"""The server behind the page: right numbers, bounds, and clear refusals."""

import io

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

from acda.cli import main
from acda.insight import guard, looks, server
from acda.insight.subject import FRESH, find_subject, look_inside
from acda.photos.files import read_photo


@pytest.fixture
def photo(tmp_path):
    y, x = np.mgrid[:48, :64]
    pixels = np.stack([127 + 100 * np.sin(x / (3 + c)) * np.cos(y / 5) for c in range(3)], 2)
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.fixture
def client(photo):
    return TestClient(server.create_app(photo, FRESH, ["testserver"]))


def test_the_page_loads_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "http" not in page.text.replace("http-equiv", "")
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_the_filter_of_a_place(client, photo):
    start = client.get("/api/start").json()
    assert start["photo"]
    assert start["model"] == FRESH
    found = client.post("/api/look", params={"model": FRESH}).json()
    assert (found["width"], found["height"]) == (64, 48)
    (layer,) = found["layers"]
    answer = client.get(
        f"/api/place/{found['id']}", params={"layer": layer["name"], "x": 10.5, "y": 20.2, "out": 3, "into": 1}
    ).json()
    assert answer["place"] == [20, 10]
    view = look_inside(find_subject(FRESH), read_photo(photo).pixels).captured.layers[layer["name"]]
    torch.testing.assert_close(torch.tensor(answer["atoms"]), view.atoms_at(20, 10).float())
    torch.testing.assert_close(torch.tensor(answer["filter"]), view.filter_at(20, 10, 3, 1).float())
    assert sum(answer["weights"]) == pytest.approx(1)
    with Image.open(io.BytesIO(client.get(f"/api/photo/{found['id']}").content)) as image:
        assert image.size == (64, 48)
    for kind in ("0", "2", "field"):
        assert client.get(f"/api/map/{found['id']}", params={"layer": layer["name"], "kind": kind}).status_code == 200


def test_other_pages_are_not_answered(client):
    for headers in ({"origin": "http://elsewhere.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        assert client.post("/api/look", params={"model": FRESH}, headers=headers).status_code == 403
    own = {"origin": "http://testserver", "sec-fetch-site": "same-origin"}
    assert client.post("/api/look", params={"model": FRESH}, headers=own).status_code == 200
    answer = client.get("/")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_uploads_are_bounded_and_have_to_be_images(client, photo, monkeypatch):
    ask = lambda body: client.post("/api/look", params={"model": FRESH}, content=body)  # noqa: E731
    assert ask(photo.read_bytes()).status_code == 200
    for body in (b"no image", photo.read_bytes()[:200]):
        answer = ask(body)
        assert answer.status_code == 400
        assert "the upload cannot be read as an image" in answer.json()["detail"]
    assert "no format that is taken here (JPEG, PNG" in ask(b"no image").json()["detail"]
    monkeypatch.setattr(server, "MOST_PIXELS", 1000)
    refused = ask(photo.read_bytes()).json()["detail"]
    assert refused == "the photo has 64×48 pixels; at most 0.001 million are taken. Make it smaller."
    monkeypatch.setattr(guard, "MOST_BYTES", 100)
    assert ask(photo.read_bytes()).status_code == 413


def test_what_is_not_there_is_said(client):
    found = client.post("/api/look", params={"model": FRESH}).json()
    layer = found["layers"][0]["name"]
    place = {"layer": layer, "x": 1, "y": 1}
    assert client.post("/api/look", params={"model": "/etc/passwd"}).status_code == 404
    assert client.get("/api/place/999", params=place).status_code == 410
    assert client.get(f"/api/place/{found['id']}", params={**place, "layer": "x"}).status_code == 404
    assert client.get(f"/api/place/{found['id']}", params={**place, "out": 8}).status_code == 400
    assert client.get(f"/api/map/{found['id']}", params={"layer": layer, "kind": "9"}).status_code == 404
    for path in ("/../etc/passwd", "/page.html", "/acda", "/api/photo/..%2f"):
        assert client.get(path).status_code in (404, 422)
    for x in (1e308, -1e308):
        assert client.get(f"/api/place/{found['id']}", params={**place, "x": x}).status_code == 200
    assert client.get(f"/api/place/{found['id']}", params={**place, "x": "nan"}).status_code == 400


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 403) for host in ("elsewhere.example", "a{b.elsewhere.example:8017", "a_b.elsewhere.example", "")),
        *((host, 403) for host in ("elsewhere.example:99999999", "127.0.0.1.elsewhere.example", "[elsewhere]")),
        *((host, 200) for host in ("testserver", "TestServer:8017", "testserver.", "127.0.0.1:8017", "[::1]:8017")),
    ],
)
def test_names_from_elsewhere_are_not_answered(client, host, status):
    """In any spelling: a server may mistake a malformed name for its own address."""
    assert client.get("/", headers={"host": host}).status_code == status


def test_links_lead_to_the_page_and_not_behind_it(client):
    assert client.get("/", headers={"host": "192.168.7.8:8017"}).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/api/start", headers=link).status_code == 403


def test_looks_are_bounded_in_bytes_too(client, monkeypatch):
    monkeypatch.setattr(looks, "KEPT_BYTES", 1)
    first, second = (client.post("/api/look", params={"model": FRESH}).json()["id"] for _ in range(2))
    assert client.get(f"/api/photo/{first}").status_code == 410
    assert client.get(f"/api/photo/{second}").status_code == 200


def test_only_the_last_looks_are_kept(client):
    look_again = lambda: client.post("/api/look", params={"model": FRESH}).json()["id"]  # noqa: E731
    numbers = [look_again() for _ in range(looks.KEPT)]
    assert client.get(f"/api/photo/{numbers[0]}").status_code == 200, "what is asked for again stays longest"
    look_again()
    assert [client.get(f"/api/photo/{number}").status_code for number in numbers[:3]] == [200, 410, 200]


def test_colours_that_are_hidden_are_not_shown(client):
    pixels = np.full((30, 40, 4), (90, 120, 150, 255), np.uint8)
    pixels[:, :20] = (255, 0, 0, 0)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    found = client.post("/api/look", params={"model": FRESH}, content=buffer.getvalue()).json()
    with Image.open(io.BytesIO(client.get(f"/api/photo/{found['id']}").content)) as image:
        assert image.getcolors() == [(30 * 40, (90, 120, 150))]


@pytest.mark.parametrize("host", ["", "nonsense.invalid", "300.1.1.1"])
def test_a_host_has_to_be_an_address(host, capsys):
    assert main(["explore", "--host", host, "--no-browser"]) == 1
    assert "--host needs an address of this machine, 127.0.0.1 for itself alone" in capsys.readouterr().err


def test_a_network_without_adaptive_layers_is_refused():
    with pytest.raises(ValueError, match="lenet has no AdaptiveConv2d"):
        server.create_app(None, "lenet", ["localhost"])
