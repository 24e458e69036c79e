"""The same ONNX policy behind BentoML: a JSON observation in, the action out; one worker, no batching."""

import os

import bentoml
import numpy as np
import onnxruntime


@bentoml.service(workers=1, traffic={"timeout": 10}, metrics={"enabled": False}, logging={"access": {"enabled": False}})
class Policy:
    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])

    @bentoml.api
    def act(self, observation: list[float]) -> dict:
        obs = np.asarray([observation], np.float32)
        return {"action": self.session.run(["action"], {"obs": obs})[0][0].tolist()}
