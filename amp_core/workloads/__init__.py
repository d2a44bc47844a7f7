"""The bundled workloads, on data that ships with a dependency or with Python itself."""
