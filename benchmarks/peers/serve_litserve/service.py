"""The same ONNX policy behind LitServe: a JSON observation in, the action out."""

import os
import sys

import litserve
import numpy as np
import onnxruntime


class Policy(litserve.LitAPI):
    def setup(self, device):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])

    def decode_request(self, request):
        return np.asarray([request["observation"]], np.float32)

    def predict(self, obs):
        return self.session.run(["action"], {"obs": obs})[0]

    def encode_response(self, action):
        return {"action": action[0].tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(Policy(), accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
