"""The management port: health, metrics, the management API (`api/`), the web console (`console/`); Starlette, uvicorn.

Imported only when HTTP is served, after the wire port is ready.
"""
