"""The same ONNX policy behind Ray Serve: a JSON observation in, the action out; one replica, no batching."""

import os
import signal
import sys

import numpy as np
import onnxruntime
import ray
from ray import serve


@serve.deployment(num_replicas=1, max_ongoing_requests=64, ray_actor_options={"num_cpus": 0})
class Policy:
    def __init__(self, model):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    async def __call__(self, request):
        obs = np.asarray([(await request.json())["observation"]], np.float32)
        return {"action": self.session.run(["action"], {"obs": obs})[0][0].tolist()}


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1]), "num_cpus": 0})
    serve.run(Policy.bind(os.environ["MODEL"]), logging_config={"enable_access_log": False})
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    ray.shutdown()
