"""The pages: server-rendered HTML over the same services and queries as REST."""
