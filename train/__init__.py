"""Environment → checkpoint: policies trained in PaddlePaddle, never losing work."""
