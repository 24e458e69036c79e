"""A bundle made into something that a device takes: C99, `.ort`, a web page, Paddle Lite's input.

`reading` turns the policy's ONNX graph into a `Program` for one observation; `c/` writes it down in C99. The other
targets wrap the ONNX file itself.
"""
