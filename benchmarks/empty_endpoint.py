"""An endpoint of the same framework that does nothing, for comparison. Run with a port."""

import sys

import uvicorn
from litestar import Litestar, Response, post


@post("/empty")
async def empty() -> Response[bytes]:
    return Response(content=b"{}", media_type="application/json")


app = Litestar([empty], openapi_config=None, logging_config=None)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
