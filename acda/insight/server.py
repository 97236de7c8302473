"""What the page asks for: networks, a photo looked at once, then the filter of any place of it.

Coefficients are computed when a photo arrives; a place only composes. Nothing of the machine's files is served: only
the page, and the photos that were handed over.
"""

import asyncio
import io
from functools import partial
from importlib.resources import files
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acda.insight.geometry import map_box, map_place, photo_place, photo_scale
from acda.insight.guard import body_of, only_this_page
from acda.insight.looks import Looks, subject_named
from acda.insight.subject import FRESH
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

MOST_PIXELS = 50_000_000
# Fresh networks to choose from: those of ours that have adaptive layers.
NETWORKS = [name for name in MODELS if name in ("lenet_acda", "ad_resnet_s", "crowd_counter_s", "restorer")]
POLICY = (
    "default-src 'none'; img-src 'self' data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'"
)


def create_app(photo: Path | None, model: str, hosts: list[str], device: str = "cpu") -> FastAPI:
    """The application; photo and model are what the page begins with.

    hosts: the names of this machine, by which it may be called    device: as in device_named
    """
    app = FastAPI(title="acda explore", docs_url=None, redoc_url=None, openapi_url=None)
    answers = Answers(photo, model, device)
    app.middleware("http")(partial(only_this_page, hosts=[host.lower().rstrip(".") for host in hosts]))
    app.exception_handler(ValueError)(_refuse)
    app.exception_handler(ClientDisconnect)(_stop)
    app.get("/", response_class=HTMLResponse)(answers.index)
    app.get("/api/start")(answers.start)
    app.post("/api/look")(answers.look)
    app.get("/api/photo/{key}")(answers.picture)
    app.get("/api/map/{key}")(answers.heatmap)
    app.get("/api/place/{key}")(answers.place)
    return app


def _refuse(_: Request, error: ValueError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=400)


def _stop(_: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=499)  # the browser has cancelled the request


class Answers:
    """What the server answers, a method for each address."""

    def __init__(self, photo: Path | None, model: str, device: str) -> None:
        self._page = files("acda.insight").joinpath("page.html").read_text(encoding="utf-8")
        self._looks, self._one_by_one = Looks(device), asyncio.Lock()
        self._beginning = None if photo is None else revealed(read_photo(photo))
        if not any(isinstance(module, AdaptiveConv2d) for module in subject_named(model, device).model.modules()):
            raise ValueError(f"{model} has no AdaptiveConv2d: there is nothing to explore in it.")
        self._model, self._names = model, list(dict.fromkeys([model, *named_weights(), FRESH, *NETWORKS]))

    def index(self) -> HTMLResponse:
        """The page itself."""
        return HTMLResponse(self._page, headers={"Content-Security-Policy": POLICY})

    def start(self) -> dict[str, Any]:
        """What the page begins with."""
        return {"models": self._names, "model": self._model, "photo": self._beginning is not None}

    async def look(self, request: Request, model: str) -> Any:
        """Look at the photo that is uploaded, or without one at that of the beginning."""
        if model not in self._names:
            raise HTTPException(404, f"there is no network {model!r} here.")
        body = await body_of(request)
        async with self._one_by_one:
            if await request.is_disconnected():
                raise ClientDisconnect
            in_thread = need("starlette.concurrency", "explore").run_in_threadpool
            return await in_thread(self._look, model, body)

    def _look(self, model: str, body: bytes) -> dict[str, Any]:
        key, found = self._looks.add(model, partial(self._read, body))
        height, width = found.photo.shape[2:]
        layers = [_about(view, (height, width)) for view in found.captured.layers.values()]
        return {"id": key, "width": width, "height": height, "layers": layers}

    def _read(self, body: bytes) -> torch.Tensor:
        pixels = read_photo_bytes(body, MOST_PIXELS) if body else self._beginning
        if pixels is None:
            raise HTTPException(400, "which photo? Drop one on the page.")
        return pixels

    def picture(self, key: str) -> Response:
        """The photo of a look."""
        return _png(self._looks.find(key).look.photo[0].permute(1, 2, 0).numpy(), compress_level=1)

    def heatmap(self, key: str, layer: str, kind: str) -> Response:
        """One map of a layer as a picture: the weight of a scale by its index, or `field`. X-Range: what it shows."""
        view, weights, field = self._looks.find(key).maps(layer)
        if kind != "field" and not (kind.isdigit() and int(kind) < len(view.scales)):
            raise HTTPException(404, f"there is no map {kind!r}.")
        values = field if kind == "field" else weights[int(kind)]
        low, high = (field.min(), field.max()) if kind == "field" else (weights.min(), weights.max())
        share = ((values - low) / (high - low).clamp_min(1e-9)).numpy()
        colours = need("matplotlib", "photos").colormaps["magma" if kind == "field" else "viridis"](share)
        answer = _png((colours[:, :, :3] * 255).astype(np.uint8))
        answer.headers["X-Range"] = f"{low:.3g} {high:.3g}"
        return answer

    def place(self, key: str, layer: str, x: float, y: float, out: int = 0, into: int = 0) -> dict[str, Any]:
        """The filter under a point of the photo. out, into: the channels of the full filter, from `into` to `out`"""
        kept = self._looks.find(key)
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


def _png(pixels: np.ndarray[Any, Any], **options: int) -> Response:
    buffer = io.BytesIO()
    need("PIL.Image", "photos").fromarray(pixels).save(buffer, "PNG", **options)
    return Response(buffer.getvalue(), media_type="image/png")


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
