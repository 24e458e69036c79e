"""The same ONNX policy behind mosec: a JSON observation in, the action out; one worker, batches of up to 64."""

import os

import msgspec
import numpy as np
import onnxruntime
from mosec import Server, Worker


class Policy(Worker):
    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
        self.dtype = np.uint8 if "uint8" in self.session.get_inputs()[0].type else np.float32

    def deserialize(self, data):
        return np.asarray(msgspec.json.decode(data)["observation"], self.dtype)

    def forward(self, observations):
        return list(self.session.run(["action"], {"obs": np.stack(observations)})[0])

    def serialize(self, action):
        return msgspec.json.encode({"action": action.tolist()})


if __name__ == "__main__":
    server = Server()
    server.append_worker(Policy, num=1, max_batch_size=64, max_wait_time=1)
    server.run()
