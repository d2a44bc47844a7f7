"""Who may do what: principals, the roles that routes declare, and the checks that come before any route."""

from server.access.dependencies import admin, submitter, undeclared_routes, viewer
from server.access.principal import ROLES, Principal, Role

__all__ = ["ROLES", "Principal", "Role", "admin", "submitter", "undeclared_routes", "viewer"]
