"""Trunks as users write them, right and wrong, for `--trunk-class trunks_of_users:…`."""

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812


class Normed(nn.Layer):
    """A layer with LayerNorm behind it, on the vector."""

    def __init__(self, shapes):
        super().__init__()
        self.width = 16
        self.first, self.norm = nn.Linear(shapes["vector"][0], 16), nn.LayerNorm(16)

    def forward(self, features):
        return F.relu(self.norm(self.first(features["vector"])))


class Looking(nn.Layer):
    """A convolution for the camera, beside the vector."""

    def __init__(self, shapes):
        super().__init__()
        channels, height, width = shapes["obs.camera"]
        self.look = nn.Conv2D(channels, 4, kernel_size=6, stride=6)
        self.flat = 4 * (height // 6) * (width // 6)
        self.width = 16
        self.first = nn.Linear(self.flat + shapes["vector"][0], 16)

    def forward(self, features):
        seen = F.relu(self.look(features["obs.camera"])).reshape([-1, self.flat])
        return paddle.tanh(self.first(paddle.concat([seen, features["vector"]], axis=-1)))


class Bare(Normed):
    """Its layer has no bias, which no int8 layer of ours can do without."""

    def __init__(self, shapes):
        super().__init__(shapes)
        self.first = nn.Linear(shapes["vector"][0], 16, bias_attr=False)


class Widthless(Normed):
    def __init__(self, shapes):
        super().__init__(shapes)
        del self.width


class Dropping(Normed):
    def __init__(self, shapes):
        super().__init__(shapes)
        self.drop = nn.Dropout(0.5)


class Counting(Normed):
    def __init__(self, shapes):
        super().__init__(shapes)
        self.norm = nn.BatchNorm1D(16)


class Random(Normed):
    def forward(self, features):
        return F.dropout(super().forward(features), 0.5)


class Narrow(Normed):
    def __init__(self, shapes):
        super().__init__(shapes)
        self.width = 8


class Failing(Normed):
    def forward(self, features):
        return features["sonar"]


class Raising(nn.Layer):
    def __init__(self, shapes):
        super().__init__()
        raise RuntimeError("no sensor here")


class NoLayer:
    width = 16
