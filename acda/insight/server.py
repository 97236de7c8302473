"""What the page asks for: networks, a photo looked at once, then the filter of any place of it.

Coefficients are computed when a photo arrives; a place only composes. Nothing of the machine's files is served: only
the page, and the photos that were handed over.
"""

import asyncio
import io
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from ipaddress import ip_address
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acda.insight.geometry import map_box, map_place, photo_place, photo_scale
from acda.insight.subject import FRESH, Look, find_subject, look_inside
from acda.insight.view import LayerView
from acda.layers import AdaptiveConv2d
from acda.models import MODELS
from acda.photos.files import read_photo, read_photo_bytes, revealed
from acda.photos.weight_folders import named_weights
from acda.support.extras import need

need("fastapi", "explore")
from fastapi import FastAPI, HTTPException, Request  # noqa: E402  after need, which names the extra
from fastapi.responses import HTMLResponse, JSONResponse, Response  # noqa: E402
from starlette.requests import ClientDisconnect  # noqa: E402

MOST_BYTES = 30_000_000
MOST_PIXELS = 50_000_000
# A request's Host: a name or an address, and a port.
HOST = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
# Looks that can still be asked about: so many, and so many bytes of coefficients, but always the newest.
KEPT, KEPT_BYTES = 6, 1_000_000_000
# Fresh networks to choose from: those of ours that have adaptive layers.
NETWORKS = [name for name in MODELS if name in ("lenet_acda", "ad_resnet_s", "crowd_counter_s", "restorer")]


# One photo, network or map at a time: two that were at work at once would need twice the memory.
WORKING = threading.Lock()


class Kept:
    """A look, and the maps of its layers, which are computed once each."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.bytes = sum(view.alpha.nbytes for view in look.captured.layers.values())
        self._maps: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def maps(self, layer: str) -> tuple[LayerView, torch.Tensor, torch.Tensor]:
        """A layer with its scale weights (S, P, Q) and receptive fields (P, Q)."""
        if layer not in self.look.captured.layers:
            raise HTTPException(404, f"there is no adaptive layer {layer!r}.")
        view = self.look.captured.layers[layer]
        if layer not in self._maps:  # what is there need not wait for others
            with WORKING:
                self._maps[layer] = (view.scale_weights()[0], view.receptive_field()[0])
        return view, *self._maps[layer]


class Looks:
    """The last few looks by names that nobody can guess."""

    def __init__(self, device: str) -> None:
        self._device, self._lock = device, threading.Lock()
        self._looks: OrderedDict[str, Kept] = OrderedDict()

    def add(self, name: str, read: Callable[[], torch.Tensor]) -> tuple[str, Look]:
        with WORKING:
            kept = Kept(look_inside(_subject(name, self._device), read()))
        with self._lock:
            key = secrets.token_urlsafe(8)
            self._looks[key] = kept
            while len(self._looks) > 1 and (len(self._looks) > KEPT or self._total() > KEPT_BYTES):
                self._looks.popitem(last=False)
        return key, kept.look

    def _total(self) -> int:
        return sum(kept.bytes for kept in self._looks.values())

    def find(self, key: str) -> Kept:
        with self._lock:
            if key not in self._looks:
                raise HTTPException(410, "this look is gone; open the photo again.")
            self._looks.move_to_end(key)
            return self._looks[key]


_subject = lru_cache(maxsize=4)(find_subject)


def create_app(photo: Path | None, model: str, hosts: list[str], device: str = "cpu") -> FastAPI:
    """The application; photo and model are what the page begins with. device: as in device_named"""
    app = FastAPI(title="acda explore", docs_url=None, redoc_url=None, openapi_url=None)
    page = files("acda.insight").joinpath("page.html").read_text(encoding="utf-8")
    looks, one_by_one = Looks(device), asyncio.Lock()
    beginning = None if photo is None else revealed(read_photo(photo))
    hosts = [host.lower().rstrip(".") for host in hosts]
    if not any(isinstance(module, AdaptiveConv2d) for module in _subject(model, device).model.modules()):
        raise ValueError(f"{model} has no AdaptiveConv2d: there is nothing to explore in it.")
    names = list(dict.fromkeys([model, *named_weights(), FRESH, *NETWORKS]))

    @app.middleware("http")
    async def only_this_page(request: Request, answer: Any) -> Response:
        """Browsers say which page a request comes from: other pages are not answered, and cannot show ours.

        A link elsewhere may lead to the page itself. A name elsewhere that is made to point here is not answered.
        """
        own = {None, f"http://{request.headers.get('host')}"}
        followed = request.method == "GET" and request.url.path == "/"
        foreign = request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and not followed
        if request.headers.get("origin") not in own or foreign or not _is_ours(request.headers.get("host"), hosts):
            return JSONResponse({"detail": "this is only for the page that is served here."}, status_code=403)
        response: Response = await answer(request)
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    @app.exception_handler(ValueError)
    def refuse(_: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=400)

    @app.exception_handler(ClientDisconnect)
    def stop(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # for nobody: the browser went on to something else

    @app.get("/", response_class=HTMLResponse)
    def index() -> HTMLResponse:
        policy = (
            "default-src 'none'; img-src 'self' data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
            "connect-src 'self'; frame-ancestors 'none'"
        )
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    @app.get("/api/start")
    def start() -> dict[str, Any]:
        return {"models": names, "model": model, "photo": beginning is not None}

    @app.post("/api/look")
    async def new_look(request: Request, model: str) -> Any:
        if model not in names:
            raise HTTPException(404, f"there is no network {model!r} here.")
        body = await _body(request)
        async with one_by_one:
            if await request.is_disconnected():
                raise ClientDisconnect
            return await _in_thread(answer_look, model, body)

    def answer_look(model: str, body: bytes) -> dict[str, Any]:
        def read() -> torch.Tensor:
            pixels = read_photo_bytes(body, MOST_PIXELS) if body else beginning
            if pixels is None:
                raise HTTPException(400, "which photo? Drop one on the page.")
            return pixels

        key, found = looks.add(model, read)
        height, width = found.photo.shape[2:]
        return {
            "id": key,
            "width": width,
            "height": height,
            "layers": [_about(view, (height, width)) for view in found.captured.layers.values()],
        }

    @app.get("/api/photo/{key}")
    def picture(key: str) -> Response:
        buffer = io.BytesIO()
        pixels = looks.find(key).look.photo[0].permute(1, 2, 0).numpy()
        need("PIL.Image", "photos").fromarray(pixels).save(buffer, "PNG", compress_level=1)
        return Response(buffer.getvalue(), media_type="image/png")

    @app.get("/api/map/{key}")
    def heatmap(key: str, layer: str, kind: str) -> Response:
        """One map of a layer as a picture: the weight of a scale by its index, or `field`. X-Range: what it shows."""
        view, weights, field = looks.find(key).maps(layer)
        if kind != "field" and not (kind.isdigit() and int(kind) < len(view.scales)):
            raise HTTPException(404, f"there is no map {kind!r}.")
        values = field if kind == "field" else weights[int(kind)]
        low, high = (field.min(), field.max()) if kind == "field" else (weights.min(), weights.max())
        share = ((values - low) / (high - low).clamp_min(1e-9)).numpy()
        colours = need("matplotlib", "photos").colormaps["magma" if kind == "field" else "viridis"](share)
        buffer = io.BytesIO()
        need("PIL.Image", "photos").fromarray((colours[:, :, :3] * 255).astype(np.uint8)).save(buffer, "PNG")
        return Response(buffer.getvalue(), media_type="image/png", headers={"X-Range": f"{low:.3g} {high:.3g}"})

    @app.get("/api/place/{key}")
    def place(key: str, layer: str, x: float, y: float, out: int = 0, into: int = 0) -> dict[str, Any]:
        """The filter under a point of the photo. out, into: the channels of the full filter, from `into` to `out`"""
        kept = looks.find(key)
        view, weights, field = kept.maps(layer)
        size = kept.look.photo.shape[2], kept.look.photo.shape[3]
        if not (isfinite(x) and isfinite(y)):
            raise HTTPException(400, f"x and y need to be numbers; got {x} and {y}.")
        row, column = map_place(view, size, min(max(x, 0), size[1]), min(max(y, 0), size[0]))
        limits = view.layer.mixing.shape
        if not (0 <= out < limits[0] and 0 <= into < limits[1]):
            raise HTTPException(400, f"channels go to {limits[0] - 1} and {limits[1] - 1}; got {out} and {into}.")
        return {
            "place": [row, column],
            "middle": photo_place(view, size, (row, column)),
            "atoms": view.atoms_at(row, column).float().tolist(),
            "filter": view.filter_at(row, column, out, into).float().tolist(),
            "weights": weights[:, row, column].tolist(),
            "field": float(field[row, column]),
            "field on photo": float(field[row, column]) * photo_scale(view, size)[1],
        }

    return app


def _about(view: LayerView, size: tuple[int, int]) -> dict[str, Any]:
    mixing, diversity = view.layer.mixing.shape, float(view.diversity()[0])
    return {
        "name": view.name,
        "rows": view.size[0],
        "columns": view.size[1],
        "scales": view.scales,
        "side": view.layer.window.side,
        "outputs": mixing[0],
        "inputs": mixing[1],
        "diversity": None if isnan(diversity) else round(diversity, 3),
        # Where its map lies on the photo: left, top, right, bottom.
        "box": map_box(view, size),
    }


def _is_ours(host: str | None, hosts: list[str]) -> bool:
    """Whether a request calls this machine by one of its names, or by an address, which nobody can make point here.

    host: the header as it came, for what is made of it may be the server's own address where it is malformed
    """
    parts = HOST.fullmatch((host or "").lower())
    if parts is None:
        return False
    name = parts[1].rstrip(".")
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return name in hosts
    return True


async def _body(request: Request) -> bytes:
    """What was uploaded, up to a limit that is kept while it arrives."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            most = f"{MOST_BYTES // 1_000_000} MB"
            raise HTTPException(413, f"the file has more than {most}. Make it smaller, or try: acda explore FILE")
    return bytes(body)


async def _in_thread(function: Any, *arguments: Any) -> Any:
    return await need("starlette.concurrency", "explore").run_in_threadpool(function, *arguments)
