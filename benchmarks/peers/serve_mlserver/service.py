"""The same ONNX policy behind MLServer, by the Open Inference Protocol; no parallel workers."""

import os

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Policy(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload):
        obs = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        action = self.session.run(["action"], {"obs": obs})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("action", action)])
