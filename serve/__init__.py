"""Bundles → actions over HTTP: the Open Inference Protocol v2 and a policy API, without Paddle.

`protocol/` turns bytes into checked requests and answers into bytes; `runtime/` holds the opened policies;
`handlers.py` joins the two, one function a route; `app.py` is the Flask application around them and `fast.py`
the short way to the two routes that have to be quick; `server.py` runs it all under granian.
"""
