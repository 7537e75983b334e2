"""Train a network that knows nothing of deeppc by predictive coding, then use it as ever: a minute on a CPU.

python examples/your_own_network.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import deeppc


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out += x
        return self.relu(out)


digits = load_digits()
images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
labels = torch.from_numpy(digits.target).long()
train, test = (images[:1437], labels[:1437]), (images[1437:], labels[1437:])

torch.manual_seed(0)
module = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), Block(16), nn.MaxPool2d(2), Block(16)),
    *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)),
)
net = deeppc.from_torch(module, images[:2], balance=True)
print("value nodes:", ", ".join(net.nodes))
algorithm = deeppc.Algorithm.parse("pc+s+f", loss="cross_entropy", lr_x=0.9, alpha=1e-3)
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)  # the module's parameters are the network's
deeppc.fit(net, (train, test), algorithm, epochs=5, batch_size=64, optimizer=optimizer, select="last")

with torch.no_grad():
    right = module.eval()(test[0]).argmax(1) == test[1]
print(f"the module itself, by plain torch: {100 * right.float().mean():.1f}% of the test digits")
