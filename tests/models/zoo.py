"""Networks as people write them, none knowing of deeppc: for digits, 1x8x8 images of 10 classes, and two for CIFAR-10.

``NETWORKS`` has a function without arguments for each, by name, and ``CIFAR_NETWORKS`` for images of 3x32x32.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

CLASSES = 10


def plain_cnn(width=16):
    def conv(i, o):
        return [nn.Conv2d(i, o, 3, padding=1), nn.ReLU(inplace=True)]

    head = [nn.Flatten(), nn.Linear(2 * width * 4, 64), nn.ReLU(inplace=True), nn.Linear(64, CLASSES)]
    pool = nn.MaxPool2d(2)
    return nn.Sequential(*conv(1, width), *conv(width, width), pool, *conv(width, 2 * width), pool, *head)


class PreActivation(nn.Module):
    """norm -> act -> conv, twice, and the input beside them (He et al. 2016b)."""

    def __init__(self, i, o, stride=1):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(i), nn.BatchNorm2d(o)
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(i, o, 1, stride, bias=False) if stride > 1 or i != o else None

    def forward(self, x):
        out = F.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(out)
        out = self.conv1(out)
        out = self.conv2(F.relu(self.norm2(out)))
        return out + shortcut


class PostActivation(nn.Module):
    """conv -> norm -> act, twice, and the input beside them (He et al. 2016a), in place where it can be."""

    def __init__(self, i, o, stride=1):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.norm2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Sequential()
        if stride > 1 or i != o:
            self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += self.down(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, block, width=16, channels=1):
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(block(width, width), block(width, 2 * width, 2), block(2 * width, 2 * width))
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        return self.head(self.blocks(x).mean((2, 3)))


class DenseNet(nn.Module):
    """Each layer sees the results of all before it (Huang et al. 2017)."""

    def __init__(self, growth=8, layers=3):
        super().__init__()
        self.stem = nn.Conv2d(1, 2 * growth, 3, padding=1, bias=False)
        sizes = [2 * growth + i * growth for i in range(layers + 1)]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, growth, 3, padding=1, bias=False))
            for n in sizes[:-1]
        )
        self.norm, self.head = nn.BatchNorm2d(sizes[-1]), nn.Linear(sizes[-1], CLASSES)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        x = F.relu(self.norm(torch.cat(features, dim=1)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, d))


class Encoder(nn.Module):
    """A pre-norm block of a transformer, with torch's attention or our own."""

    def __init__(self, dim, heads, own):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads) if own else nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.own = own

    def forward(self, x):
        y = self.norm1(x)
        x = x + (self.attention(y) if self.own else self.attention(y, y, y, need_weights=False)[0])
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, dim=32, heads=4, depth=2, channels=1, size=8, patch=2):
        super().__init__()
        self.patches = nn.Conv2d(channels, dim, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, dim))
        self.blocks = nn.Sequential(*(Encoder(dim, heads, own=i % 2 == 0) for i in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al. 2021): MLPs over patches and over channels, in turn."""

    def __init__(self, dim=32, depth=2, patches=16):
        super().__init__()

        def mlp(size):
            return nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

        self.patches = nn.Conv2d(1, dim, 2, 2)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2 * depth + 1))
        self.across, self.within = (nn.ModuleList(mlp(size) for _ in range(depth)) for size in (patches, dim))
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for i, (across, within) in enumerate(zip(self.across, self.within, strict=True)):
            x = x + across(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + within(self.norms[2 * i + 1](x))
        return self.head(self.norms[-1](x).mean(1))


class RowsRNN(nn.Module):
    """An Elman network that reads an image row by row: one set of weights, eight times."""

    def __init__(self, size=64):
        super().__init__()
        self.cell, self.head = nn.RNNCell(8, size), nn.Linear(size, CLASSES)

    def forward(self, x):
        h = torch.zeros(x.size(0), self.cell.hidden_size, device=x.device, dtype=x.dtype)
        for row in x.squeeze(1).unbind(1):
            h = self.cell(row, h)
        return self.head(h)


def torchvision_models():
    """``torchvision.models``. A CPU build of torch cannot load the operations for boxes in PyPI's CUDA build of
    torchvision, and importing it fails for want of their names; no classifier needs more than these.
    """
    try:
        import torchvision
    except RuntimeError:
        torchvision_models.names = names = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            names.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision.models


def resnet18():
    """As published but for the first convolution, which takes one channel."""
    net = torchvision_models().resnet18(num_classes=CLASSES)
    net.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    return net


def vgg11_bn():
    """As published but for the first convolution, and for 8x8 images: without the last three poolings, dropout 0."""
    net = torchvision_models().vgg11_bn(num_classes=CLASSES, dropout=0.0)
    net.features[0] = nn.Conv2d(1, 64, 3, padding=1)
    for i in (14, 21, 28):
        net.features[i] = nn.Identity()
    net.avgpool = nn.AdaptiveAvgPool2d(1)
    net.classifier[0], net.classifier[3], net.classifier[6] = (
        nn.Linear(512, 256),
        nn.Linear(256, 256),
        nn.Linear(256, 10),
    )
    return net


NETWORKS = {
    "plain CNN": plain_cnn,
    "pre-activation ResNet": lambda: ResNet(PreActivation),
    "post-activation ResNet": lambda: ResNet(PostActivation),
    "DenseNet": DenseNet,
    "vision transformer": VisionTransformer,
    "MLP-Mixer": Mixer,
    "RNN over rows": RowsRNN,
    "torchvision resnet18": resnet18,
    "torchvision vgg11_bn": vgg11_bn,
}
CIFAR_NETWORKS = {
    "pre-activation ResNet": lambda: ResNet(PreActivation, channels=3),
    "vision transformer": lambda: VisionTransformer(dim=64, channels=3, size=32, patch=4),
}
