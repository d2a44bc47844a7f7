"""The pages: server-rendered HTML over the same services and queries as REST."""

from server.pages.routes import router

__all__ = ["router"]
