"""The roles that routes declare. A route without one is refused, whoever asks.

@router.get("/api/v1/runs", dependencies=[Depends(viewer)])
def list_runs(principal: Annotated[Principal, Depends(viewer)]) -> ...
"""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.requests import Request
from starlette.routing import BaseRoute

from server.access.principal import ROLES, Principal, Role
from server.access.public import is_public
from server.errors import Forbidden, Unauthenticated


def current_principal(request: Request) -> Principal | None:
    """The caller that `server.access.authentication` found, or None on a public page before sign-in."""
    principal: Principal | None = getattr(request.state, "principal", None)
    return principal


def _require(request: Request, role: Role) -> Principal:
    principal = current_principal(request)
    if principal is None:
        raise Unauthenticated("this needs an account: sign in, or send Authorization: Bearer with an API token")
    if not principal.may(role):
        raise Forbidden(
            f"{principal.name} acts as {principal.role}; {request.method} {request.url.path} needs {role}: "
            "ask an admin for the role, or use a token that carries it"
        )
    return principal


async def viewer(request: Request) -> Principal:
    """Any signed-in person: reads everything of the team, changes nothing but their own account."""
    return _require(request, "viewer")


async def submitter(request: Request) -> Principal:
    """May also submit, cancel, retry and clone."""
    return _require(request, "submitter")


async def admin(request: Request) -> Principal:
    """May also manage people and see the audit trail."""
    return _require(request, "admin")


_ROLE_DEPENDENCIES: dict[Role, object] = {"viewer": viewer, "submitter": submitter, "admin": admin}


def _declared_roles(dependant: Dependant) -> Iterator[Role]:
    for role, dependency in _ROLE_DEPENDENCIES.items():
        if dependant.call is dependency:
            yield role
    for child in dependant.dependencies:
        yield from _declared_roles(child)


def _declares_role(dependant: Dependant) -> bool:
    return any(_declared_roles(dependant))


async def refuse_undeclared(request: Request) -> None:
    """Dependency of the whole application: no route is reachable that neither declares a role nor is public."""
    route = request.scope.get("route")
    if isinstance(route, APIRoute) and _declares_role(route.dependant):
        return
    if is_public(request.method, request.scope["path"]):
        return
    raise Forbidden(f"{request.method} {request.url.path} declares no role and is refused: report this as a bug")


def routes_of(app: FastAPI) -> Iterator[tuple[str, str, BaseRoute]]:
    """Every ``(method, path, route)`` that the application can match; mounts have the method ``*``."""
    for context in iter_route_contexts(app.routes):
        methods = context.methods or {"*"}
        for method in sorted(methods):
            yield method, context.path or "", context.original_route


def roles_of(app: FastAPI) -> dict[tuple[str, str], Role]:
    """The strongest role that each route declares, by method and path."""
    found: dict[tuple[str, str], Role] = {}
    for method, path, route in routes_of(app):
        declared = list(_declared_roles(route.dependant)) if isinstance(route, APIRoute) else []
        if declared:
            found[method, path] = max(declared, key=ROLES.index)
    return found


def undeclared_routes(app: FastAPI) -> list[str]:
    """Routes that neither declare a role nor are public; a test keeps this empty."""
    return [
        f"{method} {path}"
        for method, path, route in routes_of(app)
        if not is_public("GET" if method == "*" else method, path if method != "*" else f"{path}/")
        and not (isinstance(route, APIRoute) and _declares_role(route.dependant))
    ]
