"""`/api/play`: a game as WebAssembly, and the policy of a trial's agent, as files that static/play/ reads."""

from starlette.responses import Response
from starlette.routing import BaseRoute

from protein.envs_c import worlds
from protein.errors import UsageError
from protein.trainer.errors import TrainerError
from protein.web.answers import NotFound, Query, get
from protein.web.pages.trial import asked_for, checkpoint_of
from protein.web.viewer import Viewer

_FILE = "application/octet-stream"
_FRESH = {"cache-control": "no-store"}


def routes(viewer: Viewer) -> list[BaseRoute]:
    def world(query: Query) -> Response:
        try:
            return Response(worlds.read(query.text("env", most=200)), media_type=_FILE, headers=_FRESH)
        except worlds.NoWorldError as error:
            raise NotFound(str(error)) from error

    def policy(query: Query) -> Response:
        from protein.trainer.export import export_policy  # late: it loads numpy's safetensors, and few ask

        path, problem = checkpoint_of(viewer, *asked_for(viewer, query))
        if path is None:
            raise UsageError(problem)
        try:
            return Response(export_policy(path), media_type=_FILE, headers=_FRESH)
        except TrainerError as error:
            raise UsageError(str(error).replace(str(path), path.name)) from error

    return [get("/play/world", world), get("/play/policy", policy)]
