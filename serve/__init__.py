"""Bundles → actions over HTTP: the Open Inference Protocol v2 and a policy API, without Paddle.

As a request travels: `http/` makes a whole request of a socket's bytes; `front.py` sends it to `handlers.py` at once,
to a batch, or to Flask (`app.py`, all routes) in a thread; `door.py` says who may; `protocol/` turns bytes into checked
requests and answers into bytes; `jobs.py` runs them on the policies that `runtime/` has open.

Around them: `server.py` is the parent of the workers (`worker.py`), and `runtime/controller.py` decides for all of them
what is served.
"""
