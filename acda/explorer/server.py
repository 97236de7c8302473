"""What the page asks for: networks, a photo looked at once, then the filter of any place of it.

Coefficients are computed when a photo arrives; a place only composes. Nothing of the machine's files is served: only
the page, and the photos that were handed over.
"""

import io
import threading
from collections import OrderedDict
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acda.extras import need
from acda.insight.draw import map_place
from acda.insight.subject import FRESH, Look, find_subject, look
from acda.insight.view import LayerView
from acda.models import MODELS
from acda.photos import read_photo, read_photo_bytes
from acda.weights import PACKAGED, Trained

need("fastapi", "explore")
from fastapi import FastAPI, HTTPException, Request  # noqa: E402  after need, which names the extra
from fastapi.responses import HTMLResponse, JSONResponse, Response  # noqa: E402
from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: E402

MOST_BYTES = 30_000_000
MOST_PIXELS = 50_000_000
KEPT = 6  # looks that can still be asked about
# Fresh networks to choose from: those of ours that have adaptive layers.
NETWORKS = [name for name in MODELS if name in ("lenet_acda", "ad_resnet_s", "crowd_counter_s", "restorer")]


class Looks:
    """The last few looks by number, and what was computed of them."""

    def __init__(self) -> None:
        self._lock, self._next = threading.Lock(), 0
        self._looks: OrderedDict[int, tuple[Look, dict[str, tuple[torch.Tensor, torch.Tensor]]]] = OrderedDict()

    def add(self, subject: Trained, pixels: torch.Tensor) -> tuple[int, Look]:
        found = look(subject, pixels)
        with self._lock:
            self._next += 1
            self._looks[self._next] = (found, {})
            while len(self._looks) > KEPT:
                self._looks.popitem(last=False)
            return self._next, found

    def find(self, number: int) -> Look:
        with self._lock:
            if number not in self._looks:
                raise HTTPException(404, "this look is gone; open the photo again.")
            return self._looks[number][0]

    def maps(self, number: int, layer: str) -> tuple[LayerView, torch.Tensor, torch.Tensor]:
        """A layer with its scale weights (S, P, Q) and receptive fields (P, Q), computed once."""
        found = self.find(number)
        if layer not in found.captured.layers:
            raise HTTPException(404, f"there is no adaptive layer {layer!r}.")
        view = found.captured.layers[layer]
        with self._lock:
            computed = self._looks[number][1] if number in self._looks else {}
            if layer not in computed:
                computed[layer] = (view.scale_weights()[0], view.receptive_field()[0])
            return view, *computed[layer]


def create_app(photo: Path | None, model: str | None, hosts: list[str]) -> FastAPI:
    """The application; photo and model are what the page begins with."""
    app = FastAPI(title="acda explore", docs_url=None, redoc_url=None, openapi_url=None)
    # A page elsewhere that gets its name to point here is not answered.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    looks, page = Looks(), files("acda.explorer").joinpath("page.html").read_text(encoding="utf-8")
    beginning = None if photo is None else read_photo(photo).pixels
    first = find_subject(model)[0]
    names = list(dict.fromkeys([first, *(f.stem for f in sorted(PACKAGED.glob("*.safetensors"))), FRESH, *NETWORKS]))

    @lru_cache(maxsize=4)
    def subject(name: str) -> Trained:
        return find_subject(name)[1]

    @app.exception_handler(ValueError)
    def refuse(_: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=400)

    @app.get("/", response_class=HTMLResponse)
    def index() -> HTMLResponse:
        policy = "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        return HTMLResponse(page, headers={"Content-Security-Policy": policy + "connect-src 'self'"})

    @app.get("/api/start")
    def start() -> dict[str, Any]:
        return {"models": names, "model": first, "photo": beginning is not None}

    @app.post("/api/look")
    async def new_look(request: Request, model: str) -> Any:
        if model not in names:
            raise HTTPException(404, f"there is no network {model!r} here.")
        body = await _body(request)
        return await _in_thread(answer_look, model, body)

    def answer_look(model: str, body: bytes) -> dict[str, Any]:
        pixels = read_photo_bytes(body, MOST_PIXELS) if body else beginning
        if pixels is None:
            raise HTTPException(400, "which photo? Drop one on the page.")
        number, found = looks.add(subject(model), pixels)
        return {
            "id": number,
            "width": found.photo.shape[3],
            "height": found.photo.shape[2],
            "layers": [_about(view) for view in found.captured.layers.values()],
        }

    @app.get("/api/photo/{number}")
    def picture(number: int) -> Response:
        buffer = io.BytesIO()
        pixels = looks.find(number).photo[0].permute(1, 2, 0).numpy()
        need("PIL.Image", "photos").fromarray(pixels).save(buffer, "PNG", compress_level=1)
        return Response(buffer.getvalue(), media_type="image/png")

    @app.get("/api/map/{number}")
    def heatmap(number: int, layer: str, kind: str) -> Response:
        """One map of a layer as a picture: the weight of a scale by its index, or `field`."""
        view, weights, field = looks.maps(number, layer)
        if kind != "field" and not (kind.isdigit() and int(kind) < len(view.scales)):
            raise HTTPException(404, f"there is no map {kind!r}.")
        values = field if kind == "field" else weights[int(kind)]
        low, high = (field.min(), field.max()) if kind == "field" else (weights.min(), weights.max())
        share = ((values - low) / (high - low).clamp_min(1e-9)).numpy()
        colours = need("matplotlib", "photos").colormaps["magma" if kind == "field" else "viridis"](share)
        buffer = io.BytesIO()
        need("PIL.Image", "photos").fromarray((colours[:, :, :3] * 255).astype(np.uint8)).save(buffer, "PNG")
        return Response(buffer.getvalue(), media_type="image/png", headers={"X-Range": f"{low:.3g} {high:.3g}"})

    @app.get("/api/place/{number}")
    def place(number: int, layer: str, x: float, y: float, out: int = 0, into: int = 0) -> dict[str, Any]:
        """The filter under a point of the photo. out, into: the channels of the full filter, from `into` to `out`"""
        view, weights, field = looks.maps(number, layer)
        size = looks.find(number).photo.shape[2:]
        row, column = map_place(view, (size[0], size[1]), x, y)
        limits = view.layer.mixing.shape
        if not (0 <= out < limits[0] and 0 <= into < limits[1]):
            raise HTTPException(400, f"channels go to {limits[0] - 1} and {limits[1] - 1}; got {out} and {into}.")
        return {
            "place": [row, column],
            "atoms": view.atoms_at(row, column).float().tolist(),
            "filter": view.filter_at(row, column, out, into).float().tolist(),
            "weights": weights[:, row, column].tolist(),
            "field": float(field[row, column]),
            # From pixels of the layer's input to pixels of the photo.
            "field on photo": float(field[row, column]) * size[1] / view.input_size[1],
        }

    return app


def _about(view: LayerView) -> dict[str, Any]:
    mixing = view.layer.mixing.shape
    return {
        "name": view.name,
        "rows": view.size[0],
        "columns": view.size[1],
        "scales": view.scales,
        "side": view.layer.window.side,
        "outputs": mixing[0],
        "inputs": mixing[1],
        "diversity": round(float(view.diversity()[0]), 3),
    }


async def _body(request: Request) -> bytes:
    """What was uploaded, up to a limit that is kept while it arrives."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"the file is larger than {MOST_BYTES // 1_000_000} MB.")
    return bytes(body)


async def _in_thread(function: Any, *arguments: Any) -> Any:
    return await need("starlette.concurrency", "explore").run_in_threadpool(function, *arguments)
